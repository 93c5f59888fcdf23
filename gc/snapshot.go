// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"maps"
	"slices"
	"time"
)

// Snapshot is a copy of all records at one moment. It belongs to the caller.
type Snapshot[O, R comparable] struct {
	// Owners are the owners that use something, in no particular order.
	Owners []OwnerStatus[O, R]
	// Resources are the resources that are in use, being acquired, or unused
	// but not yet released, in no particular order.
	Resources []ResourceStatus[O, R]
}

// OwnerStatus is the state of one owner.
type OwnerStatus[O, R comparable] struct {
	// Owner is the owner.
	Owner O
	// Uses are the resources it uses, in no particular order.
	Uses []R
	// NextLook is when the next look at it is due. Zero while Run looks at it,
	// and without InUse.
	NextLook time.Time
	// GoneSince is when it was first found gone, if nothing has contradicted
	// that since. Zero otherwise.
	GoneSince time.Time
	// Err is why the last look was inconclusive, or nil.
	Err error
}

// ResourceStatus is the state of one resource.
type ResourceStatus[O, R comparable] struct {
	// Resource is the resource.
	Resource R
	// Phase is its phase.
	Phase Phase
	// Owners are its owners, in no particular order.
	Owners []O
	// UnusedSince is when its last owner freed it. Zero while it has owners and
	// while it is acquired for the first.
	UnusedSince time.Time
}

// Owners returns the owners of a resource, in no particular order. It never
// blocks on a callback.
func (c *Collector[O, R]) Owners(resource R) []O {
	c.mu.Lock()
	defer c.mu.Unlock()
	if res := c.resources[resource]; res != nil {
		return slices.Collect(maps.Keys(res.owners))
	}
	return nil
}

// Uses returns what an owner uses, in no particular order. It never blocks on a
// callback.
func (c *Collector[O, R]) Uses(owner O) []R {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec := c.owners[owner]; rec != nil {
		return slices.Collect(maps.Keys(rec.uses))
	}
	return nil
}

// Len returns how many owners use something, and how many resources there are,
// including unused ones within their grace.
func (c *Collector[O, R]) Len() (owners, resources int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rec := range c.owners {
		if len(rec.uses) > 0 {
			owners++
		}
	}
	return owners, len(c.resources)
}

// Snapshot returns a copy of all records. It never blocks on a callback, but
// takes time in proportion to their number and locks the collector meanwhile:
// it is meant for debugging pages, metrics and tests.
func (c *Collector[O, R]) Snapshot() Snapshot[O, R] {
	c.mu.Lock()
	defer c.mu.Unlock()

	s := Snapshot[O, R]{
		Owners:    make([]OwnerStatus[O, R], 0, len(c.owners)),
		Resources: make([]ResourceStatus[O, R], 0, len(c.resources)),
	}
	for key, rec := range c.owners {
		if len(rec.uses) == 0 {
			continue
		}
		next, _ := c.looks.at(key)
		s.Owners = append(s.Owners, OwnerStatus[O, R]{
			Owner:     key,
			Uses:      slices.Collect(maps.Keys(rec.uses)),
			NextLook:  next,
			GoneSince: rec.goneSince,
			Err:       rec.err,
		})
	}

	for key, res := range c.resources {
		status := ResourceStatus[O, R]{Resource: key, Phase: res.phase, Owners: slices.Collect(maps.Keys(res.owners))}
		if len(res.owners) == 0 {
			status.UnusedSince = res.freed
		}
		s.Resources = append(s.Resources, status)
	}

	return s
}
