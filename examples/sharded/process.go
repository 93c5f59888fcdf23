// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is a replica in a process of its own. If this program dies, the
// replica dies soon after: it writes to a pipe without a reader, or, if it is
// stopped, receives a SIGHUP since its process group is orphaned.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr bytes.Buffer // only the replica's last words; read after done

	done chan struct{} // closed when the process has ended
	err  error         // its result; valid once done is closed
}

// startProcess starts this program as a replica, with more arguments. Its
// reports are passed to hear, in their order; wait waits until the last of them.
func startProcess(id identity, kubeconfig string, hear func(report), more ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{
		name: id.name,
		cmd:  exec.Command(self, append([]string{"-replica", "-reads", "500ms"}, more...)...),
		done: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAME="+id.name, "POD_NAMESPACE="+id.namespace)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program alone
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	var unread error
	reading.Go(func() { unread = listen(stdout, hear) })
	go func() {
		defer close(p.done)
		reading.Wait()
		p.err = p.cmd.Wait()
		if p.err == nil {
			p.err = unread
		}
		if words := strings.TrimSpace(p.stderr.String()); words != "" {
			p.err = fmt.Errorf("%w: %s", p.err, words)
		}
	}()
	return p, nil
}

// listen reads reports until the end.
func listen(r io.Reader, hear func(report)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var unread error
	for lines.Scan() {
		var heard report
		if err := json.Unmarshal(lines.Bytes(), &heard); err != nil {
			unread = fmt.Errorf("line %q: %w", lines.Text(), err)
			continue
		}
		hear(heard)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return unread
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// wait waits until the process has ended, and returns its result.
func (p *process) wait() error {
	<-p.done
	return p.err
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process, also if it is stopped, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}
