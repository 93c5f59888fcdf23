// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// child is this program running as a separate process, with its own directory
// for temporary files.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	tmp    string
	stderr bytes.Buffer // read only after wait

	reading sync.WaitGroup
	lines   chan string // standard output; closed at its end
	told    []string    // lines that were received from there
}

func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	return startChildWith(t, nil, args...)
}

// startChildWith adds env to the environment of the program.
func startChildWith(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	c := &child{t: t, tmp: t.TempDir(), lines: make(chan string, 1000)}
	c.cmd = exec.Command(os.Args[0], args...)
	c.cmd.Env = append(append(os.Environ(), asProgram+"=1", "TMPDIR="+c.tmp), env...)
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the group that a terminal would interrupt
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.reading.Go(func() { c.read(stdout) })
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it has ended, unless the test failed
		c.drain()
		_ = c.cmd.Wait()
		if t.Failed() {
			t.Logf("the program wrote:\n%s\n%s", strings.Join(c.told, "\n"), c.stderr.String())
		}
	})
	return c
}

func (c *child) read(stdout io.Reader) {
	defer close(c.lines)
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		c.lines <- scanner.Text()
	}
}

// tells waits until the program has written a line that contains part.
func (c *child) tells(part string) {
	c.t.Helper()
	for line := range c.lines {
		c.told = append(c.told, line)
		if strings.Contains(line, part) {
			return
		}
	}
	require.FailNow(c.t, "not told", part)
}

func (c *child) drain() {
	for line := range c.lines {
		c.told = append(c.told, line)
	}
	c.reading.Wait()
}

// interrupt does what Ctrl-C does.
func (c *child) interrupt() {
	c.t.Helper()
	require.NoError(c.t, syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT))
}

// wait returns the exit status, and checks that nothing is left.
func (c *child) wait() int {
	c.t.Helper()
	c.drain()
	_ = c.cmd.Wait() // the status is checked below
	left, err := os.ReadDir(c.tmp)
	require.NoError(c.t, err)
	require.Empty(c.t, left, "temporary files are left")
	require.Empty(c.t, processesNaming(c.t, c.tmp), "processes are left")
	return c.cmd.ProcessState.ExitCode()
}

// processesNaming returns the processes with text in their command lines.
func processesNaming(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	table, err := exec.Command("ps", "-axo", "pid=,args=").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// order checks that the lines with these parts were written, in this order.
func (c *child) order(parts ...string) {
	c.t.Helper()
	rest := c.told
	for i, part := range parts {
		for len(rest) > 0 && !strings.Contains(rest[0], part) {
			rest = rest[1:]
		}
		require.NotEmpty(c.t, rest, "not told, or not in this order: %q (number %d)", part, i)
		rest = rest[1:]
	}
}
