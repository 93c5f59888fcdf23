// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"maps"
	"slices"
	"sync"

	"github.com/fleetcache/fleetcache/informerpool"
)

// tools counts the events of one kind.
type tools struct {
	mu      sync.Mutex
	present map[string]bool
	deleted []string
}

func (c *tools) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.present))
}

func (c *tools) deletes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deleted)
}

// Handle implements informerpool.Handler.
func (c *tools) Handle(e informerpool.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := e.Object().GetName()
	if e.Type == informerpool.Deleted {
		c.deleted = append(c.deleted, name)
		delete(c.present, name)
		return
	}
	c.present[name] = true
}
