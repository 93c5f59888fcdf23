// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testenv

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// processesUnder returns the processes that were started by a path under dir,
// as a map from process IDs to paths.
func processesUnder(dir string) (map[int]string, error) {
	table, err := exec.Command("ps", "-axo", "pid=,args=").Output()
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], dir+string(filepath.Separator)) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			found[pid] = fields[1]
		}
	}

	return found, nil
}

// isStopped reports whether a signal has suspended the process.
func isStopped(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(string(state), "T")
}
