// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// gitops builds the program that measures gitops-engine, once, and returns its
// path. It is a module of its own, whose dependencies are those of
// gitops-engine's release.
var gitops = sync.OnceValues(func() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the sources of bench are not known")
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("fleetcache-bench-gitops-%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join(filepath.Dir(file), "gitops")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", cmd.Dir, err, out)
	}
	return path, nil
})
