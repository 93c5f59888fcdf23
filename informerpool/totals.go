// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// Totals count what the informers of a cluster, or of the pool, have done since the pool was made, those that have ended
// included. They never go down. The fields are those of [Status].
type Totals struct {
	Lists, Watches, Resumes, Resyncs, Stalls, Rejected int64
}

// Totals returns those of all clusters together.
func (p *Pool) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum Totals
	for _, a := range p.accounts {
		t := a.totals()
		sum.Lists += t.Lists
		sum.Watches += t.Watches
		sum.Resumes += t.Resumes
		sum.Resyncs += t.Resyncs
		sum.Stalls += t.Stalls
		sum.Rejected += t.Rejected
	}
	return sum
}

// ClusterTotals returns those of one cluster; zero if it never had an informer.
func (p *Pool) ClusterTotals(cluster types.NamespacedName) Totals {
	p.mu.Lock()
	a := p.accounts[cluster]
	p.mu.Unlock()
	if a == nil {
		return Totals{}
	}
	return a.totals()
}

// account is what the informers of one cluster have in common.
type account struct {
	bytes atomic.Int64 // what they hold

	lists, watches, resumes, resyncs, stalls, rejected atomic.Int64
}

func (a *account) totals() Totals {
	return Totals{
		Lists: a.lists.Load(), Watches: a.watches.Load(), Resumes: a.resumes.Load(), Resyncs: a.resyncs.Load(),
		Stalls: a.stalls.Load(), Rejected: a.rejected.Load(),
	}
}

// accountLocked returns the account of a cluster. The pool's lock is held.
func (p *Pool) accountLocked(cluster types.NamespacedName) *account {
	a := p.accounts[cluster]
	if a == nil {
		a = &account{}
		p.accounts[cluster] = a
	}
	return a
}

// counters are an informer's own, each with that of its cluster.
type counters struct {
	lists, watches, resumes, resyncs, stalls, rejected counter
}

func newCounters(a *account) counters {
	return counters{
		lists: counter{total: &a.lists}, watches: counter{total: &a.watches}, resumes: counter{total: &a.resumes},
		resyncs: counter{total: &a.resyncs}, stalls: counter{total: &a.stalls}, rejected: counter{total: &a.rejected},
	}
}

// counter counts twice.
type counter struct {
	own   atomic.Int64
	total *atomic.Int64
}

func (c *counter) inc() {
	c.own.Add(1)
	c.total.Add(1)
}

func (c *counter) load() int64 { return c.own.Load() }
