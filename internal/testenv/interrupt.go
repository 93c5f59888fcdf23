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
// watchdogs would do it a moment after the process has died; like this nothing
// is left when its parent, or a person at a terminal, sees it gone.
var interrupts struct {
	// mu protects the fields below.
	mu      sync.Mutex
	envs    map[*Env]struct{}
	signals chan os.Signal
	done    chan struct{} // closed when the goroutine has ended
}

// stopOnInterrupt has the Env stopped on SIGINT and SIGTERM, of which the
// process dies then as it would have done. The function it returns ends that.
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
	signal.Stop(i.signals) // no signal is sent there any more
	close(i.signals)
	done := i.done
	i.mu.Unlock()
	<-done
}

// awaitInterrupt ends without doing anything when signals is closed.
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
