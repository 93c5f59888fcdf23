// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"maps"
	"sync"
	"time"
)

// fallbackAge is how long a missing capability is remembered. Servers are
// upgraded, downgraded and replaced in place.
const fallbackAge = 10 * time.Minute

// fallbackGroups are the API groups of a cluster whose server lacks a
// capability, each with the time when that was found: a group may have a server
// of its own. The zero value is empty. They are safe for concurrent use.
type fallbackGroups struct {
	mu    sync.Mutex // protects since; no other lock is taken under it
	since map[string]time.Time
}

// Add records that the group's server lacks the capability.
func (g *fallbackGroups) Add(group string) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.since == nil {
		g.since = map[string]time.Time{}
	}
	maps.DeleteFunc(g.since, func(_ string, since time.Time) bool { return time.Since(since) > fallbackAge })
	g.since[group] = time.Now()
}

// Has reports whether the group's server was recently found to lack the
// capability.
func (g *fallbackGroups) Has(group string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	since, ok := g.since[group]
	if ok && time.Since(since) > fallbackAge {
		delete(g.since, group)
		return false
	}
	return ok
}

// Forget drops all findings: another server may answer now.
func (g *fallbackGroups) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.since)
}
