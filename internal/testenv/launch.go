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
	// dirPrefix starts the name of every directory of ours among temporary
	// files.
	dirPrefix = "fleetcache-testenv-"
	// watchdogName is the argv[0] that makes a process a watchdog.
	watchdogName = "fleetcache-testenv-watchdog"
	// realSuffix ends the name of the link beside a launcher's that leads to
	// the program it becomes.
	realSuffix = ".real"
)

// A program that imports this package plays two more parts, when it is run
// under certain names: the watchdog of an Env, and the launcher of a server. It
// takes them up here, for every program passes here before its own main or its
// tests begin, and at no later place.
func init() {
	switch {
	case os.Args[0] == watchdogName && len(os.Args) == 2:
		watch(os.Args[1])
		os.Exit(0)
	case strings.Contains(os.Args[0], string(filepath.Separator)+dirPrefix):
		program, err := os.Readlink(os.Args[0] + realSuffix)
		if err != nil {
			return // somebody keeps programs in a directory named like ours
		}
		launch(program)
	}
}

// watch waits until the process that started this one lets go of the pipe, be
// it in order or by dying, and then leaves no process and no file under dir.
func watch(dir string) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := sweep(dir); err != nil {
		os.Exit(1)
	}
}
