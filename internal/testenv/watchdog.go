// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// sweepFor bounds how long killed processes may take to end.
	sweepFor = 20 * time.Second
	// pollEvery is how often we check whether a process has ended or is ready.
	pollEvery = 10 * time.Millisecond
)

// watchdog is a process that outlives this one by a moment, however this one
// dies, and removes what it leaves behind: the servers and the directory of an
// Env.
type watchdog struct {
	dir  string
	cmd  *exec.Cmd
	hold *os.File // the write end of its standard input
}

// startWatchdog starts a watchdog for the directory.
func startWatchdog(dir string) (*watchdog, error) {
	image, err := ownImage()
	if err != nil {
		return nil, err
	}
	theirs, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// No standard output, because a reader of ours waits until all processes
	// that hold it have ended.
	w := &watchdog{dir: dir, cmd: exec.Command(image, dir), hold: hold}
	w.cmd.Args[0] = watchdogName
	w.cmd.Stdin = theirs
	// A session of its own, so that an interrupt from the terminal does not
	// reach it.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = w.cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watchdog: %w", err), hold.Close())
	}
	return w, nil
}

// stop makes the watchdog clean up now, and waits for it.
func (w *watchdog) stop() error {
	err := w.hold.Close()
	if waited := w.cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("watchdog: %w", waited), sweep(w.dir))
	}
	return err
}

// sweep kills the processes started from under dir and removes dir.
func sweep(dir string) error {
	var last error
	for deadline := time.Now().Add(sweepFor); time.Now().Before(deadline); time.Sleep(pollEvery) {
		left, err := processesUnder(dir)
		if err != nil {
			return fmt.Errorf("find processes under %s: %w", dir, err)
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) > 0 {
			last = fmt.Errorf("processes under %s do not die: %v", dir, left)
			continue
		}
		// A dying process may still write files, which makes RemoveAll fail.
		if last = os.RemoveAll(dir); last == nil {
			return nil
		}
	}

	return last
}
