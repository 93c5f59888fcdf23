// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processesUnder returns the processes that were started by a path under dir,
// as a map from process IDs to paths. It excludes zombies, which no longer have
// a path.
func processesUnder(dir string) (map[int]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue // it has ended meanwhile
		}
		path, _, _ := bytes.Cut(line, []byte{0})
		if strings.HasPrefix(string(path), dir+string(filepath.Separator)) {
			found[pid] = string(path)
		}
	}

	return found, nil
}

// isStopped reports whether a signal has suspended the process.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// The state follows the command, which may contain any text in parentheses.
	_, after, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return len(after) > 0 && after[0] == 'T'
}
