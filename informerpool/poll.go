// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "errors"

// errPolled ends an attempt of an informer whose resource can be listed but not
// watched. The informer lists again after PollInterval.
var errPolled = errors.New("resource cannot be watched, only polled")

// polled records a successful poll: until the next one is due, the list is as
// good as a watch.
func (i *informer) polled() {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.polling = true
	i.attachLocked()
	i.broadcastLocked()
}
