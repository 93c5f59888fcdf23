// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "errors"

// errPolled ends an attempt of an informer whose resource can be listed but not
// watched. The informer lists again after PollInterval.
var errPolled = errors.New("resource cannot be watched, only polled")

// polled records a successful poll: until the next one is due, the list is as
// good as a watch.
func (e *entry) polled() {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.polling = true
	e.attachLocked()
	e.broadcastLocked()
}
