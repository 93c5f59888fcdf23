// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// dirPrefix is the prefix of the names of our temporary directories.
	dirPrefix = "fleetcache-testenv-"
	// watchdogName is the argv[0] that turns a process into a watchdog.
	watchdogName = "fleetcache-testenv-watchdog"
	// realSuffix is the suffix of the link beside a launcher's link that points
	// to the program it becomes.
	realSuffix = ".real"
)

// A program that imports this package has two more roles when it is run under
// certain names: the watchdog of an Env, and the launcher of a server. It
// assumes them in init, because every program runs init before its own main or
// tests, and no later place is common to all programs.
func init() {
	switch {
	case os.Args[0] == watchdogName && len(os.Args) == 2:
		watch(os.Args[1])
		os.Exit(0)
	case strings.Contains(os.Args[0], string(filepath.Separator)+dirPrefix):
		program, err := os.Readlink(os.Args[0] + realSuffix)
		if err != nil {
			return // programs of another origin may be in a directory with our prefix
		}
		launch(program)
	}
}

// watch waits until the process that started this one closes the pipe,
// deliberately or by dying, and then kills all processes and removes all files
// under dir.
func watch(dir string) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := sweep(dir); err != nil {
		os.Exit(1)
	}
}
