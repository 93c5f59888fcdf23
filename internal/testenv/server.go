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
	// startTimeout bounds the start of one server. It is generous: a machine
	// that starts twenty clusters and compiles meanwhile is slow, not broken.
	startTimeout = 3 * time.Minute
	// termPatience is how long a server may take over SIGTERM.
	termPatience = 90 * time.Second
)

// errImpatient is why a server that does not end by SIGTERM is waited for no
// longer.
var errImpatient = errors.New("did not end by SIGTERM")

// server is one process of a cluster. envtest starts it, and knows when it is
// healthy and when it has ended; what envtest does not offer is done here by
// process id: kill, pause, and an end to a start that nobody waits for any
// more. Its methods are not safe for concurrent use, except pause and resume.
type server struct {
	path   string // what envtest runs; no other process has this argv[0]
	thread *thread
	start  func() error // envtest's
	stop   func() error // envtest's
	output *os.File
}

// newServer prepares a server whose directory exists. start and stop are to be
// set by the caller.
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

// become makes the server another program from its next start on. It must not
// run.
func (s *server) become(program string) error {
	for _, link := range []string{s.path, s.path + realSuffix} {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, err := install(filepath.Dir(s.path), filepath.Base(s.path), program)
	return err
}

// run starts the process and returns when it is healthy, or when it or ctx has
// ended; then it does not run.
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

// abandon kills what is being started until the start has given up. The process
// may appear only after the first look.
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

// kill ends the process at once, if it runs.
func (s *server) kill() error {
	return s.end(context.Background(), syscall.SIGKILL)
}

// terminate asks the process to end and waits until it has. One that takes all
// too long, as on a machine that is busy or without its etcd, is killed: that
// it has ended is what the caller needs. If ctx ends, it is killed, too, which
// is an error.
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

// end signals the process and waits until it is gone.
func (s *server) end(ctx context.Context, sig syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if pid != 0 {
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT) // a paused process does not hear of SIGTERM
		if err := gone(ctx, pid); err != nil {
			return err
		}
	}
	// envtest's own bookkeeping. It may not have noticed yet, and then fails to
	// signal a process that no longer exists.
	if err := s.stop(); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", filepath.Base(s.path), err)
	}
	return nil
}

// gone waits until a child of this process has ended and been waited for, which
// is when its ports are free.
func gone(ctx context.Context, pid int) error {
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause stops the process as SIGSTOP does, and returns when it has stopped.
func (s *server) pause(ctx context.Context) error {
	pid, err := s.pid()
	if err == nil && pid == 0 {
		err = errNotRunning
	}
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", filepath.Base(s.path), err)
	}
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for !isStopped(pid) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("pause %s: %w", filepath.Base(s.path), context.Cause(ctx))
		}
	}
	return nil
}

// resume lets a paused process go on.
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

// pid returns the id of the process, or 0 if it does not run.
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

// tail returns the last lines of what the process has printed.
func (s *server) tail() string {
	text, err := os.ReadFile(s.output.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
