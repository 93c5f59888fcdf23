// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testenv

import (
	"os"
	"path/filepath"
)

// install creates a program called name in dir that envtest can run, and
// returns its path.
func install(dir, name, program string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.Symlink(program, path)
}

// launch is not used on this system.
func launch(string) {}

// ownImage returns a path by which a process can run itself again.
func ownImage() (string, error) { return os.Executable() }
