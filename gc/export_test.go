// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import "time"

// Size counts everything the collector remembers, for tests that look for
// leaks.
func (c *Collector[O, R]) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owners) + len(c.resources) + c.looks.size() + c.releases.size() +
		len(c.slots) + len(c.releasing)
}

func (t *schedule[K]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dates) + t.table.Len()
}

// ReleaseIfUnused runs the last step of a release.
func (c *Collector[O, R]) ReleaseIfUnused(resource R) bool {
	ok, _ := c.release(resource, time.Now())
	return ok
}
