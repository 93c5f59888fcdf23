// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// waiters are the goroutines that wait for a change. The lock of what they wait
// for protects them.
type waiters struct {
	changed chan struct{} // made by a waiter; closed and set to nil on the next change
}

// add returns a channel that is closed on the next change.
func (w *waiters) add() <-chan struct{} {
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

// wake wakes all of them.
func (w *waiters) wake() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}
