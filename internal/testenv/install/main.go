// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command install finds or builds the control plane binaries that the tests and
// examples use, ahead of time:
//
//	go run ./internal/testenv/install
//	go run ./internal/testenv/install 1.34 1.35
//	go run ./internal/testenv/install all
//
// It prints their directories. Without arguments it handles etcd's tools and
// the binaries of the version against which tests run by default.
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
	err := install(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func install(ctx context.Context, versions []string) error {
	if len(versions) == 0 {
		if _, err := assets.FindEtcdTools(ctx, report); err != nil {
			return err
		}
		found, err := assets.Find(ctx, report)
		if err != nil {
			return err
		}
		show(found)
		return nil
	}

	if len(versions) == 1 && versions[0] == "all" {
		var err error
		if versions, err = assets.Versions(); err != nil {
			return err
		}
	}

	for _, version := range versions {
		found, err := assets.FindVersion(ctx, version, report)
		if err != nil {
			return err
		}
		show(found)
	}

	return nil
}

func report(line string) { fmt.Fprintln(os.Stderr, "install:", line) }

func show(found assets.Binaries) {
	report("found in " + found.Source)
	fmt.Println(filepath.Dir(found.APIServer))
}
