// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestServersDieWithTheirProgramEvenIfTheWatchdogIsKilledToo(t *testing.T) {
	t.Parallel()
	p := newPlayer(t, "wait")
	p.ready(t)
	require.NoError(t, syscall.Kill(watchdogOf(t, p), syscall.SIGKILL))
	p.interrupt(t, syscall.SIGKILL)
	require.Error(t, p.Wait())
	until(t, func() bool { return len(p.processes(t)) == 0 })
}

func watchdogOf(t *testing.T, p *player) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, line := range lines {
		text, err := os.ReadFile(line)
		if err != nil || !strings.HasPrefix(string(text), testenv.WatchdogName+"\x00"+p.temp) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		require.NoError(t, err)
		return pid
	}
	t.Fatal("there is no watchdog")
	return 0
}
