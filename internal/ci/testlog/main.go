// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command testlog prints what go test prints, and at the end the slowest tests:
//
//	go test -json ./... | go run ./internal/ci/testlog
//
// It fails if a package failed, or did not end. Like go test, it prints one line
// for a package that passed. For a package that failed, it prints the output of
// each test that failed or did not end, and what passing tests wrote to stdout
// and stderr: a report of a data race may stand there.
package main

import (
	"fmt"
	"os"
)

const slowest = 20

func main() {
	l := newLog(os.Stdout)
	if err := l.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
	l.close(slowest)
	if l.failed() {
		os.Exit(1)
	}
}
