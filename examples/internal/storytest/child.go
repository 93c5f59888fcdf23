// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package storytest runs example programs as processes of their tests.
package storytest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes a test binary run as the program itself.
const asProgram = "FLEETCACHE_EXAMPLE_AS_PROGRAM"

// Program runs main, which must end the process, if the process is to be the
// program. TestMain must call it first. Processes that such a program starts of
// itself are the program, too.
func Program(main func()) {
	if os.Getenv(asProgram) != "" {
		main()
	}
}

// Child is the program as a process of its own, with its own directory for
// temporary files.
type Child struct {
	t      *testing.T
	cmd    *exec.Cmd
	tmp    string
	stderr bytes.Buffer // read only after Wait

	reading sync.WaitGroup
	lines   chan string // standard output; closed at its end
	told    []string    // lines that were received from there
}

// Start starts the program. It is killed at the end of the test if it still runs.
func Start(t *testing.T, args ...string) *Child {
	t.Helper()
	return start(t, nil, args...)
}

// TellInMemory runs the program with -embedded where no servers can be started
// or built, waits for its end, and requires that it ends well and that nothing
// but the story is written. It returns the program, for Order.
func TellInMemory(t *testing.T, args ...string) *Child {
	t.Helper()
	missing := filepath.Join(t.TempDir(), "missing")
	c := start(t, []string{"FLEETCACHE_KUBERNETES=", "KUBEBUILDER_ASSETS=" + missing},
		append([]string{"-embedded"}, args...)...)
	status := c.Wait()
	require.Zero(t, status, c.Stderr())
	require.Empty(t, c.Stderr(), "logs clutter the story")
	return c
}

// start adds env to the environment of the program.
func start(t *testing.T, env []string, args ...string) *Child {
	t.Helper()
	c := &Child{t: t, tmp: t.TempDir(), lines: make(chan string, 1000)}
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

func (c *Child) read(stdout io.Reader) {
	defer close(c.lines)
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		c.lines <- scanner.Text()
	}
}

// Tells waits until the program has written a line that contains part.
func (c *Child) Tells(part string) {
	c.t.Helper()
	for line := range c.lines {
		c.told = append(c.told, line)
		if strings.Contains(line, part) {
			return
		}
	}
	require.FailNow(c.t, "not told", part)
}

func (c *Child) drain() {
	for line := range c.lines {
		c.told = append(c.told, line)
	}
	c.reading.Wait()
}

// Interrupt does what Ctrl-C does.
func (c *Child) Interrupt() {
	c.t.Helper()
	require.NoError(c.t, syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT))
}

// Stderr returns what the program has written there. It must be called after
// Wait.
func (c *Child) Stderr() string { return c.stderr.String() }

// Wait returns the exit status, and checks that nothing is left.
func (c *Child) Wait() int {
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

// Order checks that the lines with these parts were written, in this order.
func (c *Child) Order(parts ...string) {
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
