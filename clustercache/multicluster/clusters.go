// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/misfit"
)

// DefaultSyncTimeout is the default of Options.SyncTimeout.
const DefaultSyncTimeout = 30 * time.Second

// Options configure [Clusters]. The zero value works.
type Options struct {
	// OnlyWatched keeps reads from starting informers: kinds for which no
	// handler is registered, here or elsewhere in the ClusterCache, are read
	// from the API server. By default a read starts an informer of its kind, as
	// in controller-runtime's cache; it is removed when it was not read for the
	// ClusterCache's Options.IdleTimeout.
	OnlyWatched bool
	// SyncTimeout is how long a handler's registration waits for the first list
	// before it reports that it has synced anyway, so that a controller starts
	// without a cluster that is unreachable, or does not serve or allow the
	// kind; events follow once there are any. A list by an indexed field waits
	// as long. It must be shorter than the controllers' CacheSyncTimeout, 2 min
	// by default, whose end is an error of the controller. Defaults to 30 s;
	// negative means for ever.
	SyncTimeout time.Duration
	// SyncPeriod is how often every object is delivered once more to handlers
	// that do not request their own period. Zero, the default, means never: the
	// faults that other caches resync against are proved not to occur.
	SyncPeriod time.Duration
	// Logger receives errors that cannot be returned. Defaults to that of the
	// ClusterCache.
	Logger logr.Logger
	// ClusterOptions are applied to every cluster.Cluster, as for cluster.New.
	// Scheme, HTTPClient, MapperProvider and NewCache are overridden.
	ClusterOptions []cluster.Option
}

// Clusters provides the clusters of a ClusterCache as controller-runtime's
// cluster.Cluster. All methods are safe for concurrent use; none does I/O or
// waits for a cluster.
type Clusters struct {
	cc      *clustercache.ClusterCache
	options Options
	misfits misfit.Log

	indexing sync.Mutex // serializes IndexField of all clusters; taken before mu, and before a cache's lock

	mu      sync.Mutex // protects the fields below; no other lock is taken under it
	held    remotes    // by callers of Cluster, until Forget
	engaged remotes    // by providers, until the cluster is removed
	indexes []fieldIndex
}

// remotes are clusters of which each has one cluster.Cluster.
type remotes map[client.ObjectKey]*remote

// New returns the clusters of a ClusterCache. The ClusterCache has to be
// started separately, for example by adding it to the manager. New does no I/O
// and starts nothing. It panics if cc is nil.
func New(cc *clustercache.ClusterCache, o Options) *Clusters {
	if cc == nil {
		panic("multicluster: New: cc is required")
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = DefaultSyncTimeout
	}
	if o.Logger.GetSink() == nil {
		o.Logger = cc.Options().Logger
	}
	return &Clusters{cc: cc, options: o, held: remotes{}, engaged: remotes{}}
}

// Cluster engages a cluster and returns it, whatever its state. It returns the
// same pointer every time, until Forget: the pointer stays valid while the
// cluster is unreachable, changes its credentials or moves, and when it is
// removed and created again. It is not the one that a [Provider] engages, which
// ends with its engagement. The errors are [clustercache.ErrClosed], and those
// of Options.ClusterOptions.
func (s *Clusters) Cluster(key client.ObjectKey) (cluster.Cluster, error) {
	if err := s.cc.Cluster(key).Engage(); err != nil {
		return nil, err
	}
	r, err := s.remote(s.held, key)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Forget reverses Cluster: the cluster is disengaged, and its informers are
// stopped and deliver nothing more. The next Cluster returns a new one.
func (s *Clusters) Forget(key client.ObjectKey) {
	s.mu.Lock()
	r := s.held[key]
	s.mu.Unlock()

	if r != nil {
		s.drop(s.held, r)
	}
	s.cc.Cluster(key).Disengage()
}

// remote returns the cluster.Cluster of a known cluster, which is held or
// engaged.
func (s *Clusters) remote(of remotes, key client.ObjectKey) (*remote, error) {
	s.mu.Lock()
	r := of[key]
	s.mu.Unlock()

	if r != nil {
		return r, nil
	}
	// Not under the lock, since the options are the user's. The caller that
	// loses the race drops its result, which holds nothing yet.
	var fresh *remote
	err := s.cc.Protect("Options.ClusterOptions", func() (err error) {
		fresh, err = newRemote(s, key)
		return err
	}, "cluster", clustername.Of(key))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if r := of[key]; r != nil {
		return r, nil
	}
	of[key] = fresh

	return fresh, nil
}

// drop ends a cluster, but not another one that may have replaced it.
func (s *Clusters) drop(of remotes, r *remote) {
	s.mu.Lock()
	if of[r.key] == r {
		delete(of, r.key)
	}
	s.mu.Unlock()

	r.cache.close()
}

// known returns nil if the cluster is known, and otherwise why it is not.
func known(cc *clustercache.ClusterCache, key client.ObjectKey) error {
	_, err := cc.Cluster(key).RESTMapper()
	return err
}
