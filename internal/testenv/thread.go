// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import "runtime"

// thread runs functions one by one on an operating system thread of its own.
// Servers are started there: on Linux they die with the thread that started
// them, and other threads of a Go program may end whenever the runtime likes.
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

// do has the function run, and returns when it has begun.
func (t *thread) do(call func()) { t.calls <- call }

// stop ends the thread and waits for it. Nothing may be started there any more,
// and what was must have ended.
func (t *thread) stop() {
	close(t.calls)
	<-t.done
}
