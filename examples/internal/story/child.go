// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is this program as a second process, whose output becomes part of the
// story.
type Child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	out     *Printer
	reading sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	lines   []string   // of its output
	changed chan struct{}
}

// StartChild starts the program with arguments. It is killed if ctx ends first.
// Terminate or Kill must be called.
func StartChild(ctx context.Context, out *Printer, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{
		cmd:     exec.CommandContext(ctx, self, args...),
		out:     out,
		changed: make(chan struct{}),
	}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for the parent
	c.stdin, err = c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.reading.Go(func() { c.read(stdout) })

	return c, nil
}

func (c *Child) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		if _, text, stamped := strings.Cut(line, "s  "); stamped {
			line = text // without the time of the child
		}
		c.out.Say("    | %s", line)
		c.mu.Lock()
		c.lines = append(c.lines, line)
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// News returns a channel that is closed by the next line.
func (c *Child) News() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Lines returns how many lines the process has written.
func (c *Child) Lines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lines)
}

// Since returns the lines after the first n.
func (c *Child) Since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines[n:])
}

// Missing returns an error if no line after the first n contains one of the
// parts.
func (c *Child) Missing(n int, parts ...string) error {
	text := strings.Join(c.Since(n), "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no line with %q", part)
		}
	}
	return nil
}

// Send writes to the standard input of the process.
func (c *Child) Send(text string) error {
	_, err := io.WriteString(c.stdin, text)
	return err
}

// Terminate sends SIGTERM, and returns the exit status, and how long the end
// took. A process that is still there after Patience is killed, which is status
// -1.
func (c *Child) Terminate() (status int, took time.Duration, err error) {
	begin := time.Now()
	bound := time.AfterFunc(Patience, func() { _ = c.cmd.Process.Kill() })
	defer bound.Stop()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	c.wait()
	return c.cmd.ProcessState.ExitCode(), time.Since(begin), nil
}

// Kill ends the process if it still runs.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	c.wait()
}

func (c *Child) wait() {
	c.reading.Wait()
	_ = c.cmd.Wait() // the status is in ProcessState
}
