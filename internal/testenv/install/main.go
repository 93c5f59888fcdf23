// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command install finds or builds the control plane binaries that the tests and
// examples use, ahead of time:
//
//	go run ./internal/testenv/install
//
// It prints the directory they are in.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	found, err := assets.Find(ctx, func(line string) { fmt.Fprintln(os.Stderr, "install:", line) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "install: found in", found.Source)
	fmt.Println(filepath.Dir(found.APIServer))
}
