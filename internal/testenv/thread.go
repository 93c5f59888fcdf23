// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import "runtime"

// thread runs functions one at a time on an operating system thread of its own.
// Servers are started there, because on Linux they die with the thread that
// started them, and the runtime may end other threads of a Go program at any
// time.
type thread struct {
	calls chan func()
	done  chan struct{}
}

func startThread() *thread {
	t := &thread{calls: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for call := range t.calls {
			call()
		}
	}()
	return t
}

// do runs the function on the thread, and returns when it has begun.
func (t *thread) do(call func()) { t.calls <- call }

// stop ends the thread and waits for it. All processes that were started on it
// must have ended, and none may be started any more.
func (t *thread) stop() {
	close(t.calls)
	<-t.done
}
