// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// child is this program as a second process, which watches what it receives on
// its standard input.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	out     *story.Printer
	reading sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	lines   []string   // of its output
	changed chan struct{}
}

// startChild starts the process, which is killed if ctx ends first. Its output
// becomes part of the story.
func startChild(ctx context.Context, out *story.Printer, kubeconfig string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{
		cmd:     exec.CommandContext(ctx, self, "-kubeconfig", kubeconfig, "-entries", "-"),
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

func (c *child) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		_, line, _ := strings.Cut(lines.Text(), "s  ") // without the time of the child
		c.out.Say("    | %s", line)
		c.mu.Lock()
		c.lines = append(c.lines, line)
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// news returns a channel that is closed by the next line.
func (c *child) news() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// since returns the lines after the first n.
func (c *child) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines[n:len(c.lines):len(c.lines)]
}

// configure sends a configuration.
func (c *child) configure(text string) error {
	_, err := io.WriteString(c.stdin, text+"---\n")
	return err
}

// terminate sends SIGTERM, and returns the exit status, and how long the end
// took. A process that ignores the signal is killed, which is status -1.
func (c *child) terminate() (status int, took time.Duration, err error) {
	begin := time.Now()
	bound := time.AfterFunc(story.Patience, func() { _ = c.cmd.Process.Kill() })
	defer bound.Stop()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	c.wait()
	return c.cmd.ProcessState.ExitCode(), time.Since(begin), nil
}

// kill ends the process if it still runs.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	c.wait()
}

func (c *child) wait() {
	c.reading.Wait()
	_ = c.cmd.Wait() // the status is in ProcessState
}

// missing returns an error if no line after the first n contains one of the
// parts.
func (c *child) missing(n int, parts ...string) error {
	text := strings.Join(c.since(n), "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no line with %q", part)
		}
	}
	return nil
}
