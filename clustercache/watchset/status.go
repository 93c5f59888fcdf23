// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
)

// State is the state of an entry.
type State string

// States of an entry.
const (
	// Pending: the cluster is not connected yet, or the first list has not
	// ended.
	Pending State = "Pending"
	// Synced: every object that exists was listed, and changes follow.
	Synced State = "Synced"
	// Refused: the API server refuses the request, or its answer is over a
	// limit.
	Refused State = "Refused"
	// NotServed: the cluster does not serve the kind, or not for watching.
	NotServed State = "NotServed"
	// Failing: lists or watches fail for another reason.
	Failing State = "Failing"
	// Disconnected: the cluster cannot be reached. What was delivered stays.
	Disconnected State = "Disconnected"
	// ClusterGone: the cluster does not exist, or no longer. What was delivered
	// has left the set.
	ClusterGone State = "ClusterGone"
)

// Status is a snapshot of one entry. In every state but Synced, attempts
// continue, and the entry recovers by itself.
type Status struct {
	// Entry is the name of the entry.
	Entry string
	State State
	// Err is the cause, if one is known. It is nil in state Synced.
	Err error
	// Cluster is the status of the entry's cluster, and Watch that of its
	// watch.
	Cluster status.Cluster
	Watch   status.Watch
}

// report is the part of a status whose changes are delivered.
type report struct {
	state State
	err   string
}

func (s Status) report() report {
	r := report{state: s.State}
	if s.Err != nil {
		r.err = s.Err.Error()
	}
	return r
}

// Status returns the status of an entry, and false if there is none of that
// name. It does no I/O.
func (s *Set) Status(name string) (Status, bool) {
	for {
		e := s.entry(name)
		if e == nil {
			return Status{}, false
		}
		if now := s.statusOf(e); s.entry(name) == e { // otherwise it may be that of a released watch
			return now, true
		}
	}
}

func (s *Set) entry(name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.entries[name]
}

// Statuses returns the status of every entry, sorted by name. It does no I/O.
func (s *Set) Statuses() []Status {
	s.mu.Lock()
	entries := maps.Clone(s.mu.entries)
	s.mu.Unlock()

	all := make([]Status, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, s.statusOf(entries[name]))
	}
	return all
}

func (s *Set) statusOf(e *entry) Status {
	now := Status{Entry: e.name, Watch: e.watch.Status()}
	cluster, err := s.cc.Cluster(e.target.Cluster).Status()
	if err != nil {
		now.State, now.Err = ClusterGone, err
		return now
	}
	now.Cluster = cluster
	now.State, now.Err = classify(cluster, now.Watch)

	return now
}

// classify returns the state of an entry, and its cause.
func classify(cluster status.Cluster, w status.Watch) (State, error) {
	err := w.LastError
	switch {
	case cluster.Phase == status.PhaseGone:
		return ClusterGone, cluster.LastError
	case !cluster.Connected &&
		(cluster.Phase == status.PhasePending || cluster.Phase == status.PhaseConnecting):
		return Pending, cluster.LastError
	case !cluster.Connected:
		return Disconnected, cluster.LastError
	case meta.IsNoMatchError(err), errors.Is(err, clustercache.ErrNotWatchable),
		errors.Is(err, informerpool.ErrOtherVersion), apierrors.IsNotFound(err):
		return NotServed, err
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err),
		errors.Is(err, clustercache.ErrBudget), errors.Is(err, clustercache.ErrKind):
		return Refused, err
	case err != nil:
		return Failing, err
	case w.Informer.Synced:
		return Synced, nil
	}
	return Pending, nil
}

// clusterChanged is called after every event of a cluster.
func (s *Set) clusterChanged(e events.Cluster) {
	if e.Type == events.Removed {
		for _, c := range s.all() {
			c.evict(e.Cluster)
		}
	}
	s.notify(func(of *entry) bool { return of.target.Cluster == e.Cluster })
}

// watchChanged is called after every event of a watch. Two entries may share
// it.
func (s *Set) watchChanged(e events.Watch) {
	s.notify(func(of *entry) bool { return of.target.Cluster == e.Key.Cluster && of.target.GVK == e.Key.GVK })
}

// notify has the status of some entries delivered, if it has changed.
func (s *Set) notify(selected func(*entry) bool) {
	var names []string
	s.mu.Lock()
	for name, e := range s.mu.entries {
		if selected(e) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()

	for _, name := range names {
		s.handler.notify(name)
	}
}
