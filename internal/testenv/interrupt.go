// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts ends the clusters of tests when this process is interrupted. The
// watchdogs would do that a moment after the process has died. This way nothing
// is left by the time its parent, or a person at a terminal, sees it end.
var interrupts struct {
	// mu protects the fields below.
	mu      sync.Mutex
	envs    map[*Env]struct{}
	signals chan os.Signal
	done    chan struct{} // closed when the goroutine has ended
}

// stopOnInterrupt makes SIGINT and SIGTERM stop e before the process dies of
// the signal as usual. release ends that.
func stopOnInterrupt(e *Env) (release func()) {
	i := &interrupts
	i.mu.Lock()
	defer i.mu.Unlock()

	if len(i.envs) == 0 {
		i.envs = map[*Env]struct{}{}
		i.signals = make(chan os.Signal, 1)
		i.done = make(chan struct{})
		signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM)
		go awaitInterrupt(i.signals, i.done)
	}

	i.envs[e] = struct{}{}

	return func() { releaseInterrupt(e) }
}

func releaseInterrupt(e *Env) {
	i := &interrupts
	i.mu.Lock()
	delete(i.envs, e)
	if len(i.envs) > 0 {
		i.mu.Unlock()
		return
	}
	signal.Stop(i.signals) // from now on no signal is sent to the channel
	close(i.signals)
	done := i.done
	i.mu.Unlock()

	<-done
}

// awaitInterrupt returns without doing anything when signals is closed.
func awaitInterrupt(signals <-chan os.Signal, done chan<- struct{}) {
	defer close(done)
	sig, ok := <-signals
	if !ok {
		return
	}
	interrupts.mu.Lock()
	envs := make([]*Env, 0, len(interrupts.envs))
	for e := range interrupts.envs {
		envs = append(envs, e)
	}
	interrupts.mu.Unlock()

	var wg sync.WaitGroup
	for _, e := range envs {
		wg.Go(func() { _ = e.Stop() })
	}
	wg.Wait()
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig.(syscall.Signal))
}
