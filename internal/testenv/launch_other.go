// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testenv

import (
	"os"
	"path/filepath"
)

// install makes name, in dir, a program that envtest can run, and returns its
// path.
func install(dir, name, program string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.Symlink(program, path)
}

// launch is not used: there is nothing to prepare.
func launch(string) {}

// ownImage is the path by which a process can run itself once more.
func ownImage() (string, error) { return os.Executable() }
