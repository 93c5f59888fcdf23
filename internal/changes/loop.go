// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"sync"
)

// Loop runs one loop for as long as it has holders.
type Loop struct {
	Run func(ctx context.Context)

	mu     sync.Mutex // protects the fields below
	holds  int
	cancel context.CancelFunc
	done   chan struct{}
}

// Hold makes sure that the loop runs. The last release stops it and waits for
// its end. A hold that comes while an old loop is ending starts a new one
// beside it, so a loop must not share state with its predecessor.
func (l *Loop) Hold(ctx context.Context) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.holds++

	if l.holds == 1 {
		// The loop serves all holders, so it keeps the first one's context
		// values, but not its end.
		loopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		l.cancel, l.done = cancel, done
		go func() {
			defer close(done)
			l.Run(loopCtx)
		}()
	}

	return l.release
}

func (l *Loop) release() {
	l.mu.Lock()
	l.holds--
	var cancel context.CancelFunc
	var done chan struct{}
	if l.holds == 0 {
		cancel, done = l.cancel, l.done
	}
	l.mu.Unlock()

	if cancel != nil {
		cancel()
		<-done
	}
}
