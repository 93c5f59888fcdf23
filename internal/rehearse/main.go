// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command rehearse releases the tree into a git repository of its own, and uses
// the release as others will, in empty modules:
//
//	go run ./internal/rehearse           # at the version that the modules require of each other
//	go run ./internal/rehearse v0.25.1   # this version, which CHANGELOG.md has to begin with
//
// First it checks that the files of the tree name the same versions. Then it
// commits the files, as they are, to a temporary repository, tags each released
// module, and lets the go command fetch them from these tags, as a module proxy
// does: go get of each module alone, the first program of the README, go install
// of programs, go doc. It changes neither the tree, nor the tags of its
// repository, nor the module cache. Other modules come from the module cache,
// or else from GOPROXY.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rehearse(ctx, ".", os.Args[1:], programs, progress(time.Now()))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rehearse:", err)
		os.Exit(1)
	}
}

// progress prints what is done next, and after how long.
func progress(start time.Time) func(string) {
	return func(step string) { fmt.Printf("%4.0fs %s\n", time.Since(start).Seconds(), step) }
}

// program is one that others install from the release.
type program struct {
	path string
	args []string // of the run that has to succeed
}

// programs of the root module. The second one needs no servers, and checks what
// it shows.
var programs = []program{
	{path: "examples/fleettop", args: []string{"-h"}},
	{path: "examples/quickstart", args: []string{"-embedded"}},
}

// rehearse returns why the tree cannot be released, if it cannot.
func rehearse(ctx context.Context, dir string, args []string, programs []program, step func(string)) error {
	modules, err := readModules(ctx, dir)
	if err != nil {
		return err
	}

	version, err := modules.version(args)
	if err != nil {
		return err
	}
	step("check that the tree names " + version)
	if err := modules.agree(dir, version, len(args) > 0); err != nil {
		return err
	}

	tags := modules.tags(version)
	step("release " + strings.Join(tags, " and "))
	r, err := newRelease(ctx, dir, modules, version)
	if err != nil {
		return err
	}
	defer r.remove()
	if err := r.use(ctx, programs, step); err != nil {
		return err
	}
	step("ready: " + strings.Join(tags, " and "))
	return nil
}
