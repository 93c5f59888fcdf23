// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is a repository with tags, and a module cache that fetches from it.
type release struct {
	modules modules
	version string
	dir     string            // temporary: repo, cache, bin, and a directory for each user
	env     []string          // of the go command
	hide    *strings.Replacer // the addresses of proxies
}

// newRelease commits the files of a tree, and tags each module.
func newRelease(ctx context.Context, tree string, modules modules, version string) (_ *release, err error) {
	if tree, err = filepath.Abs(tree); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rehearse-")
	if err != nil {
		return nil, err
	}
	r := &release{modules: modules, version: version, dir: dir}
	defer func() {
		if err != nil {
			r.remove()
		}
	}()

	commands := [][]string{
		{"init", "--quiet", "--template="},
		{"add", "--all"}, // but not what .gitignore names
		{"commit", "--quiet", "--message", "release"},
	}
	for _, tag := range modules.tags(version) {
		commands = append(commands, []string{"tag", "--no-sign", tag})
	}
	for _, args := range commands {
		if err := r.git(ctx, tree, args...); err != nil {
			return nil, err
		}
	}
	return r, r.setEnv(ctx)
}

func (r *release) remove() { _ = os.RemoveAll(r.dir) }

func (r *release) repo() string  { return filepath.Join(r.dir, "repo") }
func (r *release) cache() string { return filepath.Join(r.dir, "cache") }
func (r *release) bin() string   { return filepath.Join(r.dir, "bin") }

// git runs in the temporary repository, whose work tree is the tree.
func (r *release) git(ctx context.Context, tree string, args ...string) error {
	options := []string{
		"--git-dir=" + r.repo(),
		"--work-tree=" + tree,
		"-c", "user.name=rehearse",
		"-c", "user.email=rehearse@localhost",
		"-c", "commit.gpgSign=false",
		"-c", "core.hooksPath=" + os.DevNull,
	}
	cmd := exec.CommandContext(ctx, "git", append(options, args...)...)
	cmd.Dir = tree
	cmd.Env = environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// setEnv has the go command fetch the released modules from the repository, and
// all others from what the ordinary module cache holds, or else from GOPROXY.
// Its own module cache keeps a version that is only rehearsed out of the
// ordinary one. With -trimpath, what is built does not depend on that directory,
// so that later rehearsals find it in the build cache.
func (r *release) setEnv(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY", "GOPRIVATE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	lines := strings.Split(string(out), "\n")
	cache, proxy, private := lines[0], lines[1], lines[2]
	root := r.modules.root().Module.Path
	count, _ := strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
	r.env = append(environ(),
		"GOMODCACHE="+r.cache(),
		"GOPROXY=file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+proxy,
		"GOPRIVATE="+strings.TrimPrefix(private+","+root, ","),
		"GOFLAGS=-modcacherw -trimpath",
		"GOWORK=off",
		"GOBIN="+r.bin(),
		"GIT_CONFIG_COUNT="+strconv.Itoa(count+1),
		fmt.Sprintf("GIT_CONFIG_KEY_%d=url.file://%s.insteadOf", count, filepath.ToSlash(r.repo())),
		fmt.Sprintf("GIT_CONFIG_VALUE_%d=https://%s", count, root),
	)
	r.hide = strings.NewReplacer(replacements(proxy)...)
	return nil
}

// environ is the environment without the repository that a hook of git runs in.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}, name)
	})
}

// replacements keep the addresses of proxies out of what is printed.
func replacements(proxy string) []string {
	var pairs []string
	for p := range strings.FieldsFuncSeq(proxy, func(r rune) bool { return r == ',' || r == '|' }) {
		if strings.Contains(p, "://") {
			pairs = append(pairs, strings.TrimSuffix(p, "/"), "$GOPROXY")
		}
	}
	return pairs
}

// downloading is what the go command prints about each module that it fetches.
var downloading = regexp.MustCompile(`(?m)^go: downloading .*\n`)

// run runs a command in a directory of the release, and returns what it printed.
func (r *release) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, r.env
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	printed := downloading.ReplaceAllString(r.hide.Replace(string(out)), "")
	if err != nil {
		command := strings.Join(append([]string{filepath.Base(name)}, args...), " ")
		return printed, fmt.Errorf("%s: %w\n%s", command, err, strings.TrimSpace(printed))
	}
	return printed, nil
}
