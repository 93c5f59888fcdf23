// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// internalDirs hold modules that others cannot or need not import, and which are
// not released. Every other module of the tree is.
var internalDirs = []string{"bench", "examples", "internal", "tools"}

// module is a go.mod, as "go mod edit -json" prints it.
type module struct {
	dir string // in the tree, with slashes; empty for the root

	Module    struct{ Path string }
	Go        string
	Toolchain string
	Require   []struct{ Path, Version string }
}

// requires returns the version of another module that m requires, or "".
func (m module) requires(path string) string {
	for _, r := range m.Require {
		if r.Path == path {
			return r.Version
		}
	}
	return ""
}

// file is the go.mod in the tree.
func (m module) file() string { return path.Join(m.dir, "go.mod") }

// modules are those that are released, the root first.
type modules []module

func readModules(ctx context.Context, dir string) (modules, error) {
	var read modules
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || slices.Contains(internalDirs, filepath.ToSlash(rel))) {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		m, err := readModule(ctx, file)
		m.dir = strings.TrimPrefix(path.Dir(filepath.ToSlash(rel)), ".")
		read = append(read, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(read, func(a, b module) int { return strings.Compare(a.dir, b.dir) })
	if len(read) == 0 || read[0].dir != "" {
		return nil, errors.New("there is no go.mod: not run from the root of the tree?")
	}
	return read, nil
}

func readModule(ctx context.Context, file string) (module, error) {
	var m module
	out, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", file).CombinedOutput()
	if err != nil {
		return m, fmt.Errorf("go mod edit: %w\n%s", err, out)
	}
	return m, json.Unmarshal(out, &m)
}

func (ms modules) root() module { return ms[0] }

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// version is the one given, or that which a module requires of the root.
func (ms modules) version(args []string) (string, error) {
	switch {
	case len(args) > 1 || len(args) == 1 && !semver.MatchString(args[0]):
		return "", errors.New("usage: rehearse [version, such as v0.25.1]")
	case len(args) == 1:
		return args[0], nil
	}
	for _, m := range ms[1:] {
		if version := m.requires(ms.root().Module.Path); version != "" {
			return version, nil
		}
	}
	return "", errors.New("no module requires the root, so the version has to be given")
}

// tags are those of a release: a module in a directory has its path before the
// version, as the go command wants it.
func (ms modules) tags(version string) []string {
	var tags []string
	for _, m := range ms {
		tags = append(tags, path.Join(m.dir, version))
	}
	return tags
}

// agree checks what the files of the tree say about versions. Those who depend on
// a module do not see its replacements, so that a released module has to require
// the other ones at the version that is released with it.
func (ms modules) agree(dir, version string, named bool) error {
	var wrong []error
	for _, m := range ms {
		if m.Go != ms.root().Go {
			wrong = append(wrong, fmt.Errorf("%s is for go %s, go.mod for go %s", m.file(), m.Go, ms.root().Go))
		}
		if m.Toolchain != "" {
			wrong = append(wrong, fmt.Errorf("%s names a toolchain, which each user would have to download", m.file()))
		}
		for _, other := range ms {
			if required := m.requires(other.Module.Path); required != "" && required != version {
				wrong = append(wrong, fmt.Errorf("%s requires %s at %s, not %s",
					m.file(), other.Module.Path, required, version))
			}
		}
	}
	wrong = append(wrong, ms.root().documented(dir, version))
	if named {
		wrong = append(wrong, changelogBegins(dir, version))
	}
	return errors.Join(wrong...)
}

// documented checks that README.md has a row of its table of versions that is
// true: of the module itself, controller-runtime, client-go and Go.
func (m module) documented(dir, version string) error {
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	cells := []string{
		minor(version) + ".x",
		minor(m.requires("sigs.k8s.io/controller-runtime")) + ".x",
		minor(m.requires("k8s.io/client-go")) + ".x",
		minor(m.Go),
	}
	if row := "| " + strings.Join(cells, " | ") + " |"; !strings.Contains(string(text), "\n"+row) {
		return fmt.Errorf("README.md has no row of versions that begins with %q", row)
	}
	return nil
}

// minor cuts a version after its minor.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

var heading = regexp.MustCompile(`(?m)^## (\S+)`)

func changelogBegins(dir, version string) error {
	text, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if first := heading.FindSubmatch(text); first == nil || string(first[1]) != version {
		return fmt.Errorf("the first heading of CHANGELOG.md is not %q", "## "+version)
	}
	return nil
}
