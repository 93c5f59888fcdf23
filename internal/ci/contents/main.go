// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command contents checks what is committed: sources are, programs are not.
//
//	go run ./internal/ci/contents
//
// It refuses programs, compiled code, archives and other binary files, files
// over 256 KiB, and images that are not listed here. It judges each file of the
// index, and each file that a commit since the ground commit adds or changes: a
// file that a later commit removes again stays in every clone.
package main

import (
	"fmt"
	"os"
	"slices"
)

// ground is the first commit whose successors are checked. A program of 72 MB
// is part of the history before it.
const ground = "89c5bb86d6244eee57e7dee48ea62a0f5775a61f"

// images are the files that may be binary.
var images = []string{
	"docs/images/page-desktop-dark.png",
	"docs/images/page-desktop-light.png",
	"docs/images/page-phone-dark.png",
	"docs/images/page-phone-light.png",
}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "contents:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	report, err := check(dir, ground, images)
	if err != nil {
		return err
	}
	fmt.Println(report.summary())
	for _, line := range slices.Sorted(slices.Values(report.refused)) {
		fmt.Println(line)
	}
	if n := len(report.refused); n > 0 {
		return fmt.Errorf("%d files must not be committed", n)
	}
	return nil
}
