// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Aware receives clusters: it is the Aware of multicluster-runtime, whose type
// for a cluster's name is N. Engage must return when its context ends.
type Aware[N ~string] interface {
	Engage(ctx context.Context, name N, cl cluster.Cluster) error
}

// ProviderOptions configure a [Provider]. The zero value works, but see
// NotFound.
type ProviderOptions struct {
	// NotFound is wrapped by the errors of Get for a cluster that is not known,
	// that was removed, or that was never connected because no usable
	// description of its access exists. Set it to multicluster-runtime's
	// ErrClusterNotFound, for which that drops requests of such clusters. A
	// cluster that only cannot be reached is found.
	NotFound error
	// Names translate between clusters and their names.
	Names Names
	// Clusters selects clusters. Nil means all that are known. It must be quick
	// and always give the same answer for a cluster.
	Clusters func(cluster client.ObjectKey) bool
}

// Provider offers the clusters of a ClusterCache to multicluster-runtime:
// Provider[multicluster.ClusterName, multicluster.Aware] is both its Provider
// and its ProviderRunnable, and Provider[string, multicluster.Aware] that of
// releases whose names are plain strings. All methods are safe for concurrent
// use.
type Provider[N ~string, A Aware[N]] struct {
	s *Clusters
	o ProviderOptions
}

// NewProvider returns a provider. It does no I/O and starts nothing. The hub
// itself, the zero key, is never engaged: the manager already has it as its
// local cluster. It panics if s is nil.
func NewProvider[N ~string, A Aware[N]](s *Clusters, o ProviderOptions) *Provider[N, A] {
	if s == nil {
		panic("multicluster: NewProvider: s is required, which New returns")
	}
	o.Names = o.Names.withDefaults()
	return &Provider[N, A]{s: s, o: o}
}

// name returns the name of a cluster; false if the cluster is not to be
// engaged, or if a function of the options panics.
func (p *Provider[N, A]) name(key client.ObjectKey) (N, bool) {
	if key == (client.ObjectKey{}) {
		return "", false
	}
	var name N
	var selected bool
	err := p.s.cc.Protect("ProviderOptions.Clusters", func() error {
		selected = p.o.Clusters == nil || p.o.Clusters(key)
		return nil
	}, "cluster", clustername.Of(key))
	if err != nil || !selected {
		return "", false
	}
	err = p.s.cc.Protect("Names.Name", func() error {
		name = N(p.o.Names.Name(key))
		return nil
	}, "cluster", clustername.Of(key))

	return name, err == nil && name != ""
}

// Key returns the cluster of a name, and the zero key for a name without one.
func (p *Provider[N, A]) Key(name N) client.ObjectKey {
	key, ok, err := p.key(name)
	if !ok || err != nil {
		return client.ObjectKey{}
	}
	return key
}

// key returns the cluster of a name.
func (p *Provider[N, A]) key(name N) (key client.ObjectKey, ok bool, err error) {
	err = p.s.cc.Protect("Names.Key", func() error {
		key, ok = p.o.Names.Key(string(name))
		return nil
	}, "name", string(name))
	return key, ok, err
}

// Get returns a known cluster, reachable or not. It does no I/O. The error
// wraps ProviderOptions.NotFound and [clustercache.ErrUnknownCluster]; for a
// cluster that has no usable access, and was never connected, NotFound and the
// cause instead, such as [clustercache.ErrNoAccess] or a *resolver.RefusedError,
// from when that is known on, whatever Get returned before; for
// one that another replica owns (clustercache.Options.Sharding), NotFound and
// [clustercache.ErrNotOwner], so that requests of lost clusters are dropped;
// after the end it is [clustercache.ErrClosed].
func (p *Provider[N, A]) Get(_ context.Context, name N) (cluster.Cluster, error) {
	key, ok, err := p.key(name)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", string(name), err)
	}
	if ok {
		_, ok = p.name(key)
	}
	if !ok {
		return nil, p.notFound(name, clustercache.ErrUnknownCluster)
	}
	if err := known(p.s.cc, key); err != nil {
		return nil, p.notFound(name, err)
	}
	if !p.s.cc.Cluster(key).Owned() {
		return nil, p.notFound(name, clustercache.ErrNotOwner)
	}
	if err := unusable(p.s.cc, key); err != nil {
		return nil, p.notFound(name, err)
	}
	r, err := p.s.remote(p.s.engaged, key)
	if err != nil {
		return nil, p.notFound(name, err)
	}
	return r, nil
}

// IndexField indexes a field in every present and future cluster. See
// [Clusters.IndexField].
func (p *Provider[N, A]) IndexField(
	ctx context.Context, obj client.Object, field string, values client.IndexerFunc,
) error {
	return p.s.IndexField(ctx, obj, field, values)
}

// Start engages every known cluster with aware, reachable or not, and those
// that become known later, until ctx ends. Only a cluster that was never
// connected waits for the first answer of the resolver and the server, and one
// whose access cannot be used (it does not exist yet, cannot be understood, or
// policy refuses it) is not engaged until it can.
//
// Each cluster is engaged from a goroutine of its own, and again after a while
// if that fails, so a slow cluster delays no other. The context of an
// engagement ends when its cluster is removed, or with ctx; a cluster that is
// created again is engaged as another cluster.Cluster.
//
// With the ClusterCache's Options.Sharding, a cluster is engaged while this
// replica owns it. A manager of such a provider runs on every replica, without
// leader election. Wrap its reconcilers by controller.WhileOwned, with Key,
// so that their contexts end with the ownership, and are waited for:
//
//	controller.WhileOwned(cc, func(r mcreconcile.Request) client.ObjectKey {
//		return p.Key(r.ClusterName)
//	}, reconciler)
//
// Start returns when every call of Engage has returned, and no later than a
// second after ctx ended: the error names a user function that is still running
// then, and its goroutine is left behind.
func (p *Provider[N, A]) Start(ctx context.Context, aware A) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx, aware)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return nil
	case <-time.After(stopTimeout):
		return errStillRunning
	}
}

// stopTimeout bounds how long the end waits for functions of the user.
const stopTimeout = time.Second

var errStillRunning = errors.New("a provider's Aware.Engage, ProviderOptions.Clusters or Names " +
	"is still running at the end")

// run engages until ctx ends.
func (p *Provider[N, A]) run(ctx context.Context, aware A) {
	misnamed := map[client.ObjectKey]struct{}{}
	e := newEngagements(ctx, p.s, aware.Engage)
	defer e.wait()

	for event := range p.s.cc.ClusterEvents(ctx) {
		// A removal or loss ends the engagement, even if Names and Clusters
		// answer differently by now.
		tenure, owned := ownership(p.s.cc, event.Cluster)
		if event.Type == events.Removed || event.Phase == status.PhaseGone || !owned {
			e.end(event.Cluster)
			continue
		}
		e.endOther(event.Cluster, tenure)
		name, ok := p.name(event.Cluster)
		switch {
		case !ok:
		case !engageable(p.s.cc, event.Cluster): // what is engaged already stays so
		case p.callable(event.Cluster, name, misnamed):
			e.begin(event.Cluster, name, tenure)
		}
	}

	// The caller of Start takes its return for the end of all clusters, even if
	// only the ClusterCache ended.
	<-ctx.Done()
}

// tenure is one time in which this replica owns a cluster without a break.
// Requests of a break are dropped, so the cluster is engaged again after it.
type tenure struct {
	token int64
	since time.Time // a lapse by the clock keeps the token
}

// ownership returns the tenure in which this replica owns a cluster, and whether
// it does.
func ownership(cc *clustercache.ClusterCache, key client.ObjectKey) (t tenure, owned bool) {
	s, err := cc.Cluster(key).Status()
	switch {
	case err != nil:
		return t, cc.Cluster(key).Owned()
	case s.Ownership == nil:
		return t, true
	}

	return tenure{s.Ownership.Token, s.Ownership.Since}, s.Ownership.Owned
}

// callable reports whether a cluster's name leads back to it. If not, Get could
// not return the engaged cluster; that is logged once.
func (p *Provider[N, A]) callable(key client.ObjectKey, name N, misnamed map[client.ObjectKey]struct{}) bool {
	err := p.s.cc.Protect("Names.Key", func() error { return p.o.Names.check(key, string(name)) },
		"cluster", clustername.Of(key))
	if err == nil {
		return true
	}
	if _, logged := misnamed[key]; !logged {
		misnamed[key] = struct{}{}
		p.s.options.Logger.Error(err, "Cluster is not engaged", "cluster", clustername.Of(key), "name", string(name))
	}
	return false
}

// engageable reports whether a cluster was connected, or could be if it were
// reachable.
func engageable(cc *clustercache.ClusterCache, key client.ObjectKey) bool {
	s, err := cc.Cluster(key).Status()
	switch {
	case err != nil || s.Phase == status.PhaseGone:
		return false
	case s.Connects > 0:
		return true
	}

	return s.Phase == status.PhaseDisconnected && unusable(cc, key) == nil
}

// unusable returns why a cluster that was never connected has no usable access;
// nil if it has, or if that is not known yet.
func unusable(cc *clustercache.ClusterCache, key client.ObjectKey) error {
	s, err := cc.Cluster(key).Status()
	switch {
	case err != nil:
		return err
	case s.Connects > 0:
		return nil
	}

	switch s.Reason {
	case status.ReasonNoAccess, status.ReasonClusterNotFound,
		status.ReasonBadAccess, status.ReasonRefused:
		return &unusableError{s.LastError}
	}
	return nil
}

// unusableError is the reason why a cluster counts as not found although it is
// known.
type unusableError struct{ err error }

func (e *unusableError) Error() string { return fmt.Sprintf("no usable access: %v", e.err) }

func (e *unusableError) Unwrap() error { return e.err }

// notFound converts the error for a cluster that is not known, or cannot be
// used; other errors stay unchanged.
func (p *Provider[N, A]) notFound(name N, err error) error {
	_, useless := errors.AsType[*unusableError](err)
	if p.o.NotFound == nil || !isUnknown(err) && !useless && !errors.Is(err, clustercache.ErrNotOwner) {
		return fmt.Errorf("cluster %q: %w", string(name), err)
	}
	return fmt.Errorf("cluster %q: %w: %w", string(name), p.o.NotFound, err)
}
