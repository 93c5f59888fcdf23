// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Bounds of a released module: what a user downloads, and what a single file of
// it may be. A program that was committed by mistake is larger.
const (
	maxZip  = 5 << 20
	maxFile = 1 << 20
)

// use does what users of the release do, each in a directory of its own.
func (r *release) use(ctx context.Context, programs []program, step func(string)) error {
	for _, m := range r.modules {
		step("go get " + m.Module.Path)
		if err := r.getModule(ctx, m); err != nil {
			return fmt.Errorf("in an empty module: %w", err)
		}
		if err := r.checkZip(m); err != nil {
			return fmt.Errorf("the archive of %s: %w", m.Module.Path, err)
		}
	}
	step("build the first program of the README")
	if err := r.buildReadme(ctx); err != nil {
		return fmt.Errorf("the first program of the README: %w", err)
	}
	for _, p := range programs {
		step("go install " + p.path)
		if err := r.install(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// emptyModule makes a module that requires nothing.
func (r *release) emptyModule(ctx context.Context) (dir string, err error) {
	if dir, err = os.MkdirTemp(r.dir, "user-"); err != nil {
		return "", err
	}
	_, err = r.run(ctx, dir, "go", "mod", "init", "example.com/user")
	return dir, err
}

// getModule gets a module, builds its packages, and reads its documentation.
func (r *release) getModule(ctx context.Context, m module) error {
	dir, err := r.emptyModule(ctx)
	if err != nil {
		return err
	}
	if _, err := r.run(ctx, dir, "go", "get", m.Module.Path); err != nil {
		return err
	}
	if err := r.checkVersions(ctx, dir); err != nil {
		return err
	}
	if m.dir != "" { // the README's program builds those of the root
		if _, err := r.run(ctx, dir, "go", "build", m.Module.Path+"/..."); err != nil {
			return err
		}
	}
	doc, err := r.run(ctx, dir, "go", "doc", m.Module.Path)
	if err == nil && !strings.Contains(doc, m.Module.Path) {
		err = fmt.Errorf("go doc %s prints %q", m.Module.Path, doc)
	}
	return err
}

// checkVersions checks that a user has each released module at the version that
// is released, and not at an older one or at a commit.
func (r *release) checkVersions(ctx context.Context, dir string) error {
	out, err := r.run(ctx, dir, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	found := false
	for _, m := range r.modules {
		for line := range strings.Lines(out) {
			name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != m.Module.Path {
				continue
			}
			if found = true; version != r.version {
				return fmt.Errorf("%s is used at %s, not %s", name, version, r.version)
			}
		}
	}
	if !found {
		return errors.New("no released module is used")
	}
	return nil
}

var firstProgram = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// buildReadme takes the program from the README of the released module.
func (r *release) buildReadme(ctx context.Context) error {
	root := r.modules.root().Module.Path
	text, err := os.ReadFile(filepath.Join(r.cache(), filepath.FromSlash(root)+"@"+r.version, "README.md"))
	if err != nil {
		return err
	}
	block := firstProgram.FindSubmatch(text)
	if block == nil {
		return errors.New("there is none")
	}

	dir, err := r.emptyModule(ctx)
	if err != nil {
		return err
	}
	if _, err := r.run(ctx, dir, "go", "get", root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), block[1], 0o600); err != nil {
		return err
	}
	if _, err := r.run(ctx, dir, "go", "mod", "tidy"); err != nil {
		return err
	}
	if err := r.checkVersions(ctx, dir); err != nil {
		return err
	}
	_, err = r.run(ctx, dir, "go", "build", "-o", os.DevNull, ".")
	return err
}

// install installs a program outside of any module, and runs it.
func (r *release) install(ctx context.Context, p program) error {
	dir, err := os.MkdirTemp(r.dir, "user-")
	if err != nil {
		return err
	}
	name := path.Join(r.modules.root().Module.Path, p.path)
	if _, err := r.run(ctx, dir, "go", "install", name+"@"+r.version); err != nil {
		return err
	}
	_, err = r.run(ctx, dir, filepath.Join(r.bin(), path.Base(name)), p.args...)
	return err
}

// checkZip looks at what users download.
func (r *release) checkZip(m module) error {
	file := filepath.Join(r.cache(), "cache", "download", filepath.FromSlash(m.Module.Path), "@v", r.version+".zip")
	archive, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	info, err := os.Stat(file)
	if err != nil {
		return err
	}

	var wrong []error
	if info.Size() > maxZip {
		wrong = append(wrong, fmt.Errorf("%d bytes, more than %d", info.Size(), maxZip))
	}
	prefix, licensed := m.Module.Path+"@"+r.version+"/", false
	for _, f := range archive.File {
		name := strings.TrimPrefix(f.Name, prefix)
		licensed = licensed || name == "LICENSE"
		if f.UncompressedSize64 > maxFile {
			wrong = append(wrong, fmt.Errorf("%s has %d bytes, more than %d", name, f.UncompressedSize64, maxFile))
		}
		if path.Base(name) == "go.mod" && name != "go.mod" {
			wrong = append(wrong, fmt.Errorf("it contains the module of %s", name))
		}
	}
	if !licensed {
		wrong = append(wrong, errors.New("it has no LICENSE"))
	}
	return errors.Join(wrong...)
}
