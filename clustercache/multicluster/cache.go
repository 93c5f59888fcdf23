// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// remoteCache is the cache of one cluster: a view of the ClusterCache's data
// about it.
type remoteCache struct {
	s       *Clusters
	cc      *clustercache.ClusterCache
	key     client.ObjectKey
	started chan struct{} // closed by the first Start
	once    sync.Once     // closes started

	mu        sync.Mutex // protects the fields below; no other lock is taken under it
	starts    int        // running calls of Start
	closed    bool
	informers map[representation]*informer
	indexed   map[indexKey]*indexed
}

var _ cache.Cache = (*remoteCache)(nil)

func newRemoteCache(s *Clusters, key client.ObjectKey) *remoteCache {
	return &remoteCache{
		s:         s,
		cc:        s.cc,
		key:       key,
		started:   make(chan struct{}),
		informers: map[representation]*informer{},
		indexed:   map[indexKey]*indexed{},
	}
}

// NeedLeaderElection returns false, as for every cache.
func (c *remoteCache) NeedLeaderElection() bool { return false }

// fail adds the cluster and the kind to an error.
func (c *remoteCache) fail(op string, gvk schema.GroupVersionKind, err error) error {
	return &clustercache.ClusterError{
		Cluster: c.key,
		GVK:     gvk,
		Op:      op,
		Err:     err,
	}
}

// reads returns the mode of reads that do not specify one. Reads never register
// an unknown cluster: requests left over after its removal would keep it known.
func (c *remoteCache) reads() clustercache.ReadMode {
	if c.s.options.OnlyWatched {
		return clustercache.PreferCache
	}
	return clustercache.AutoWatch
}

// Get implements client.Reader.
func (c *remoteCache) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	if err := known(c.cc, c.key); err != nil {
		return err
	}
	return c.cc.Cluster(c.key).Reader().Get(ctx, key, obj, append([]client.GetOption{c.reads()}, opts...)...)
}

// List implements client.Reader.
func (c *remoteCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := known(c.cc, c.key); err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(list, c.cc.Options().Scheme)
	if err != nil {
		return c.fail("list", gvk, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if c.needsIndex(gvk, opts) {
		return c.listIndexed(ctx, gvk, list, opts)
	}
	return c.cc.Cluster(c.key).Reader().List(ctx, list, append([]client.ListOption{c.reads()}, opts...)...)
}

// needsIndex reports whether the API server could not answer a list, because
// the list selects by a field that only exists as an index.
func (c *remoteCache) needsIndex(gvk schema.GroupVersionKind, opts []client.ListOption) bool {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	byIndex := func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace" &&
			c.cc.Cluster(c.key).Indexed(gvk, r.Field)
	}
	return o.FieldSelector != nil && slices.ContainsFunc(o.FieldSelector.Requirements(), byIndex)
}

// listIndexed reads only from the cache. If necessary it waits for the kind's
// first list, but not for a cluster to be connected.
func (c *remoteCache) listIndexed(
	ctx context.Context, gvk schema.GroupVersionKind, list client.ObjectList, opts []client.ListOption,
) error {
	opts = append([]client.ListOption{clustercache.CacheOnly}, opts...)
	if c.reads() == clustercache.AutoWatch {
		if _, _, err := c.cc.Cluster(c.key).WatchAndRead(ctx, gvk); err != nil {
			return err
		}
	}
	err := c.cc.Cluster(c.key).Reader().List(ctx, list, opts...)
	underWay := errors.Is(err, clustercache.ErrNotWatched) && c.reads() == clustercache.AutoWatch
	if !errors.Is(err, clustercache.ErrNotSynced) && !underWay {
		return err
	}
	if t := c.s.options.SyncTimeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t, clustercache.ErrNotSynced)
		defer cancel()
	}
	if err := c.waitSynced(ctx, gvk); err != nil {
		return err
	}
	return c.cc.Cluster(c.key).Reader().List(ctx, list, opts...)
}

// waitSynced waits for the first list of a kind.
func (c *remoteCache) waitSynced(ctx context.Context, gvk schema.GroupVersionKind) error {
	w, err := c.cc.Cluster(c.key).Watch(ctx, clustercache.Kind(gvk))
	if err != nil {
		return ended(ctx, err)
	}
	defer w.Release()
	return ended(ctx, w.WaitForSync(ctx))
}

// GetInformer implements cache.Informers. It returns at once, whatever the
// state of the cluster, and whether or not the cluster serves the kind. With
// the option BlockUntilSynced(true) it waits for the first list, or for ctx.
func (c *remoteCache) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	f, err := representationOf(obj, c.cc.Options().Scheme)
	if err != nil {
		return nil, c.fail("get informer", f.gvk, err)
	}
	return c.getInformer(ctx, f, opts)
}

// GetInformerForKind implements cache.Informers. It works like GetInformer.
func (c *remoteCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	obj, err := c.cc.Options().Scheme.New(gvk)
	if err != nil {
		return nil, c.fail("get informer", gvk, err)
	}
	typed, ok := obj.(client.Object)
	if !ok {
		return nil, c.fail("get informer", gvk, errNoStruct)
	}
	f, err := representationOf(typed, c.cc.Options().Scheme)
	if err != nil {
		return nil, c.fail("get informer", gvk, err)
	}
	return c.getInformer(ctx, f, opts)
}

func (c *remoteCache) getInformer(
	ctx context.Context, f representation, opts []cache.InformerGetOption,
) (cache.Informer, error) {
	o := cache.InformerGetOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	c.mu.Lock()
	i := c.informers[f]
	if i == nil {
		i = &informer{
			c:              c,
			representation: f,
			stopped:        c.closed,
			handlers:       map[*registration]struct{}{},
		}
		if !c.closed {
			c.informers[f] = i
		}
	}

	c.mu.Unlock()

	if o.BlockUntilSynced != nil && *o.BlockUntilSynced {
		if err := i.wait(ctx); err != nil {
			return nil, err
		}
	}

	return i, nil
}

// RemoveInformer implements cache.Informers: it removes the handlers of the
// informer that GetInformer returns for obj, which accepts no more handlers;
// the next GetInformer returns another one. An informer started by reads is
// removed when it is idle.
func (c *remoteCache) RemoveInformer(_ context.Context, obj client.Object) error {
	f, err := representationOf(obj, c.cc.Options().Scheme)
	if err != nil {
		return c.fail("remove informer", f.gvk, err)
	}
	c.mu.Lock()
	i := c.informers[f]
	delete(c.informers, f)
	c.mu.Unlock()

	if i != nil {
		i.stop()
	}

	return nil
}

// Start implements cache.Informers: it blocks until ctx ends. It is not needed
// for anything, but when the last running Start ends, the returned informers
// are stopped.
func (c *remoteCache) Start(ctx context.Context) error {
	c.mu.Lock()
	c.starts++
	c.mu.Unlock()

	c.once.Do(func() { close(c.started) })
	<-ctx.Done()
	c.mu.Lock()
	c.starts--
	last := c.starts == 0
	c.mu.Unlock()

	if last {
		c.stopInformers()
	}

	return nil
}

// WaitForCacheSync implements cache.Informers. It does not wait for the
// cluster, which may be unreachable for long, but only until the ClusterCache
// or this cache was started. It returns false if ctx ended.
func (c *remoteCache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.started:
	case <-c.cc.Started():
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (c *remoteCache) stopInformers() {
	c.mu.Lock()
	stopped := c.informers
	c.informers = map[representation]*informer{}
	c.mu.Unlock()

	for _, i := range stopped {
		i.stop()
	}
}

// close closes the cache for good, because the cluster was removed or
// forgotten. Reads continue as before.
func (c *remoteCache) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()

	c.stopInformers()
	c.dropIndexes()
}

// gone reports whether the cluster was removed.
func (c *remoteCache) gone() bool {
	s, err := c.cc.Cluster(c.key).Status()
	return err != nil || s.Phase == status.PhaseGone
}
