// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the start of one server. It is generous, because a
	// machine that starts twenty clusters while it compiles is slow, not
	// broken.
	startTimeout = 3 * time.Minute
	// termPatience is how long a server may take to end after SIGTERM.
	termPatience = 90 * time.Second
)

// errImpatient indicates that a server did not end within termPatience.
var errImpatient = errors.New("did not end by SIGTERM")

// server is one process of a cluster. envtest starts it and detects when it is
// healthy and when it has ended. Operations that envtest does not offer are
// done here by process ID: kill, pause, and abandoning a start. Its methods are
// not safe for concurrent use, except pause and resume.
type server struct {
	path   string // the path that envtest runs; no other process has this argv[0]
	thread *thread
	start  func() error // envtest's
	stop   func() error // envtest's
	output *os.File
}

// newServer prepares a server whose directory exists. The caller must set start
// and stop.
func newServer(dir, name, program string, t *thread) (*server, error) {
	path, err := install(dir, name, program)
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &server{path: path, thread: t, output: output}, nil
}

// become makes the server run another program from its next start on. The
// server must not be running.
func (s *server) become(program string) error {
	for _, link := range []string{s.path, s.path + realSuffix} {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, err := install(filepath.Dir(s.path), filepath.Base(s.path), program)
	return err
}

// run starts the process and returns when it is healthy. If the process or ctx
// ends before, run returns an error and the process is not running.
func (s *server) run(ctx context.Context) error {
	started := make(chan error, 1)
	s.thread.do(func() { started <- s.start() })
	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		err = s.abandon(started)
		if err == nil {
			err = errors.New("not waited for")
		}
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}

	if err != nil {
		_ = s.kill()
		return fmt.Errorf("start %s: %w\n%s", filepath.Base(s.path), err, s.tail())
	}

	return nil
}

// abandon keeps killing the process until its start has failed. The process may
// appear only after the first attempt.
func (s *server) abandon(started <-chan error) error {
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for {
		select {
		case err := <-started:
			return err
		case <-look.C:
			_ = s.signal(syscall.SIGKILL)
		}
	}
}

// kill ends the process at once, if it is running.
func (s *server) kill() error {
	return s.end(context.Background(), syscall.SIGKILL)
}

// terminate sends SIGTERM to the process and waits until it has ended. If that
// takes far too long, for example on a busy machine or without etcd, terminate
// kills the process, because the caller needs it to end. If ctx ends, terminate
// also kills it, and returns an error.
func (s *server) terminate(ctx context.Context) error {
	patient, cancel := context.WithTimeoutCause(ctx, termPatience, errImpatient)
	defer cancel()
	err := s.end(patient, syscall.SIGTERM)
	if err == nil {
		return nil
	}
	killed := s.kill()
	if errors.Is(err, errImpatient) && ctx.Err() == nil {
		return killed
	}
	return errors.Join(err, killed)
}

// end sends a signal to the process and waits until it has ended.
func (s *server) end(ctx context.Context, sig syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if pid != 0 {
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT) // a suspended process does not receive SIGTERM
		if err := gone(ctx, pid); err != nil {
			return err
		}
	}

	// This updates envtest's own state. envtest may not have noticed the end
	// yet, and then fails to signal a process that no longer exists.
	if err := s.stop(); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", filepath.Base(s.path), err)
	}
	return nil
}

// gone waits until a child of this process has ended and has been waited for,
// so that its ports are free.
func gone(ctx context.Context, pid int) error {
	return poll(ctx, pollEvery, func() (bool, error) { return syscall.Kill(pid, 0) != nil, nil })
}

// pause suspends the process with SIGSTOP, and returns when it is suspended.
func (s *server) pause(ctx context.Context) error {
	pid, err := s.pid()
	if err == nil && pid == 0 {
		err = errNotRunning
	}
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err == nil {
		err = poll(ctx, pollEvery, func() (bool, error) { return isStopped(pid), nil })
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", filepath.Base(s.path), err)
	}
	return nil
}

// resume continues a suspended process.
func (s *server) resume() error {
	if err := s.signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume %s: %w", filepath.Base(s.path), err)
	}
	return nil
}

func (s *server) signal(sig syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if pid == 0 {
		return errNotRunning
	}
	return syscall.Kill(pid, sig)
}

// pid returns the process ID, or 0 if the process is not running.
func (s *server) pid() (int, error) {
	found, err := processesUnder(filepath.Dir(s.path))
	if err != nil {
		return 0, err
	}
	for pid, path := range found {
		if path == s.path {
			return pid, nil
		}
	}
	return 0, nil
}

// tail returns the last lines of the process's output.
func (s *server) tail() string {
	text, err := os.ReadFile(s.output.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
