// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
)

// Cluster is a handle for the cluster of a key, known or not. It is a small
// value that can be kept and compared: it stands for whatever cluster has the
// key at the time of a call.
type Cluster struct {
	cc  *ClusterCache
	key client.ObjectKey
}

// Cluster returns the handle for the cluster of a key. It does no I/O, and makes
// nothing known: [Cluster.Engage], [Cluster.Watch] and reads in mode
// [AutoWatch] do.
func (cc *ClusterCache) Cluster(key client.ObjectKey) Cluster { return Cluster{cc: cc, key: key} }

// Key returns the key of the cluster.
func (h Cluster) Key() client.ObjectKey { return h.key }

// Engage makes the cluster known and keeps it connected until Disengage. It
// returns at once. Engaging a cluster again has no effect.
func (h Cluster) Engage() error {
	_, err := h.cc.engage(h.key, true)
	return err
}

// Disengage undoes Engage. It disconnects and forgets the cluster if it has no
// watch; otherwise that happens when the last watch is released. With
// Options.Discover, clusters that the resolver lists stay. Disengage does not
// wait.
func (h Cluster) Disengage() {
	if c := h.cc.find(h.key); c != nil {
		c.unpin()
	}
}

// WaitConnected waits until the known cluster is connected, for the first time or
// again. It returns at once if the cluster is connected already. The error is
// [ErrUnknownCluster] if the cluster is not known, or is forgotten meanwhile,
// and [ErrClosed] if the ClusterCache ends first. If ctx ends first, the error
// wraps the cause of ctx and [ErrNotConnected], and gives the reason why the
// cluster is not connected.
func (h Cluster) WaitConnected(ctx context.Context) error {
	fail := func(err error) error { return &ClusterError{Cluster: h.key, Op: "wait for connection", Err: err} }
	for {
		c := h.cc.find(h.key)
		switch {
		case h.cc.ctx.Err() != nil:
			return fail(ErrClosed)
		case c == nil:
			return fail(ErrUnknownCluster)
		}

		v := c.conn.View()
		if v.Connected {
			return nil
		}

		select {
		case <-v.Up:
			return nil
		case <-c.conn.Done(): // another cluster of this key may exist by now
		case <-h.cc.ctx.Done():
		case <-ctx.Done():
			return fail(fmt.Errorf("%w: %w", context.Cause(ctx), c.WhyNot()))
		}
	}
}

// Status returns a snapshot of the cluster. It does no I/O and waits only for
// short locks. The error is [ErrUnknownCluster].
func (h Cluster) Status() (Status, error) {
	c := h.cc.find(h.key)
	if c == nil {
		return Status{}, &ClusterError{Cluster: h.key, Op: "status", Err: ErrUnknownCluster}
	}
	return c.status(), nil
}

// Labels returns a copy of the cluster's labels, and whether they are known. They
// are known, and kept, from when the resolver first gives access to the cluster
// until the cluster is gone. It does no I/O.
func (h Cluster) Labels() (labels map[string]string, known bool) {
	c := h.cc.find(h.key)
	if c == nil {
		return nil, false
	}
	labels = maps.Clone(c.conn.View().Labels)
	return labels, labels != nil
}

// Reader returns a reader of the cluster. It never fails and does no I/O; its
// reads return the errors, as a [*ClusterError], or as the API server reported
// them. The reader can be kept for as long as the ClusterCache. Objects that
// are read belong to the caller, unless the option client.UnsafeDisableDeepCopy
// says that they are not changed, and name their kind. [ReadMode] selects where
// they come from. Read with [ForApply] if an apply configuration is extracted
// from the object.
func (h Cluster) Reader() client.Reader {
	if c := h.cc.find(h.key); c != nil {
		return c.reader
	}
	return &reader{cc: h.cc, key: h.key, mode: h.cc.options.ReadMode}
}

// Client returns a client for the cluster. It reads as Reader does, or, with
// Options.ReadYourWrites, no less than what was written before, and writes to
// the API server. Client does no I/O; its result can be kept for as long as the
// cluster is known. While the cluster is not connected, writes fail at once
// with [ErrNotConnected]; writes to a cluster that another replica owns fail
// with [ErrNotOwner]. Errors of writes are a [*ClusterError], which
// apierrors.IsConflict and the like unwrap. Warnings that the server sends are
// dropped, since they are its text; a client that is made from
// [Cluster.TransportConfig] with a WarningHandlerWithContext of its own
// gets them.
//
// Beware of Get, Extract and Apply: an apply configuration extracted from an
// object without managedFields is empty, and applying it removes everything
// that its manager owns. Pass [ForApply] to such a Get; it matters where
// Informers.DropManagedFields or a transform leaves managedFields out of the
// cache.
func (h Cluster) Client() (client.Client, error) {
	c, err := h.cc.known(h.key, "client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: h.key, Op: "client", Err: err}
	}
	return &cachedClient{Client: liveclient.Named(live, c.hooks()), c: c}, nil
}

// LiveClient is Client without the cache: reads go to the API server as well,
// whatever is watched.
func (h Cluster) LiveClient() (client.Client, error) {
	c, err := h.cc.known(h.key, "live client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: h.key, Op: "live client", Err: err}
	}
	return liveclient.Named(live, c.hooks()), nil
}

// Watch acquires a kind in the cluster, and makes the cluster known. It
// returns at once, whatever the state of the cluster. obj names the kind: a
// typed object, an unstructured one or [Kind]. client.InNamespace,
// MatchingLabels and MatchingFields narrow the watch. ctx is checked only at
// the start; its end has no effect later. Errors are [ErrClosed], ctx's, and
// those of an invalid kind or selector.
func (h Cluster) Watch(ctx context.Context, obj client.Object, opts ...client.ListOption) (*Watch, error) {
	id, err := h.cc.selection(obj, opts)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, &ClusterError{
			Cluster: h.key,
			GVK:     id.GVK,
			Op:      "watch",
			Err:     err,
		}
	}

	return h.cc.watch(h.key, id)
}

// WatchAndRead is for reconcilers that request what they need on every run. It
// takes an informer of the kind, which ends when it was not requested for
// Options.IdleTimeout. It returns a reader of the cluster, and whether the
// informer answers its reads now; its reads keep the informer, too.
// WatchAndRead returns at once; until the informer has synced, the API server
// answers the reads.
func (h Cluster) WatchAndRead(ctx context.Context, gvk schema.GroupVersionKind) (client.Reader, bool, error) {
	if ctx.Err() != nil {
		return nil, false, &ClusterError{
			Cluster: h.key,
			GVK:     gvk,
			Op:      "watch",
			Err:     context.Cause(ctx),
		}
	}

	c, w, err := h.cc.acquire(h.key, watchset.Selection{GVK: gvk}, true)
	if err != nil {
		return nil, false, err
	}
	return &reader{cc: h.cc, key: h.key, mode: AutoWatch}, c.unanswered(w) == nil, nil
}

// WatchStatuses returns a snapshot of every watch of the cluster, sorted by kind
// and selection. It does no I/O. The error is [ErrUnknownCluster].
func (h Cluster) WatchStatuses() ([]WatchStatus, error) {
	c := h.cc.find(h.key)
	if c == nil {
		return nil, &ClusterError{Cluster: h.key, Op: "watch status", Err: ErrUnknownCluster}
	}
	wants := c.wants.All()
	slices.SortFunc(wants, func(a, b *watchset.Want) int { return a.Compare(b.Selection) })
	out := make([]WatchStatus, len(wants))
	for i, w := range wants {
		out[i] = c.watchStatus(w)
	}

	return out, nil
}

// Serving returns nil if the cluster is connected, and the cache answers reads of
// each of the kinds, whatever they select: all of the kind is watched, and all
// of its watches have synced and are trusted. Where only a namespace of a kind
// is watched, or a selection, the error is [ErrNotWatched]: what is asked for
// there is [Watch.HasSynced] or [Use].Synced. Serving does no I/O. The error
// joins a [*ClusterError] for the cluster, or for each kind, with the cause;
// [IsWaiting] and [ReasonOf] classify it. Without kinds only the connection
// counts.
func (h Cluster) Serving(kinds ...client.Object) error {
	fail := func(gvk schema.GroupVersionKind, err error) error {
		return &ClusterError{
			Cluster: h.key,
			GVK:     gvk,
			Op:      "serve",
			Err:     err,
		}
	}
	r := &reader{cc: h.cc, key: h.key}
	c, err := r.cluster(context.Background(), &readOptions{}, watchset.Selection{})
	if err == nil {
		err = c.conn.OtherCluster()
	}
	if err != nil {
		return fail(schema.GroupVersionKind{}, err)
	}

	var errs []error
	for _, kind := range kinds {
		id, err := h.cc.selection(kind, nil)
		whole, parts := false, 0
		for _, w := range c.wants.All() {
			if err != nil || w.GVK != id.GVK {
				continue
			}
			whole = whole || w.Selection == id || w.Covers(&client.ListOptions{})
			parts++
			if synced, why := c.standing(w); !synced {
				err = why
			}
		}
		switch {
		case err != nil || whole:
		case parts > 0:
			err = fmt.Errorf("%w as a whole", ErrNotWatched)
		default:
			err = ErrNotWatched
		}
		if err != nil {
			errs = append(errs, fail(id.GVK, err))
		}
	}

	return errors.Join(errs...)
}

// Indexed reports whether reads of cached objects of the cluster can select by a
// field, either by an index or because the field is part of every object's
// name.
func (h Cluster) Indexed(gvk schema.GroupVersionKind, field string) bool {
	return field == "metadata.name" || field == "metadata.namespace" || h.cc.indexes.find(h.key, gvk, field) != nil
}

// IsNamespaced reports whether the objects of a kind have a namespace in the
// cluster. It does no I/O: known is false if the cluster is unknown, if its
// discovery has not been queried for the kind yet, or if the kind is not
// served.
func (h Cluster) IsNamespaced(gvk schema.GroupVersionKind) (namespaced, known bool) {
	c := h.cc.find(h.key)
	if c == nil {
		return false, false
	}
	mapping, known := c.mapper.Cached(gvk)
	return mapping.Namespaced, known
}

// RESTMapper returns the mapper of the cluster. Clusters that serve the same
// kinds share its data. Its methods may query the API server.
func (h Cluster) RESTMapper() (meta.RESTMapper, error) {
	c, err := h.cc.known(h.key, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}

// RESTConfig returns a copy of the cluster's current REST config, for making
// your own clients. It holds credentials and does not follow their rotation;
// its requests are not rate-limited by the ClusterCache, and if it names a
// credential plugin, they wait for that without a limit, as client-go does. It
// fails while the cluster is not connected.
func (h Cluster) RESTConfig() (*rest.Config, error) {
	c, err := h.cc.known(h.key, "REST config")
	if err != nil {
		return nil, err
	}
	if v := c.conn.View(); v.Connected && !v.Access.IsZero() {
		return v.Access.Config(), nil
	}
	return nil, &ClusterError{Cluster: h.key, Op: "REST config", Err: c.WhyNot()}
}

// TransportConfig returns a config for your own clients whose requests take the
// same route as the ClusterCache's: they follow changes of credentials and
// address, and the return of a removed cluster; they fail at once with
// [ErrNotConnected] or [ErrUnknownCluster] where there is no connection, and
// with [ErrNotOwner], apart from GET, where another replica owns the cluster;
// and they count in the cluster's rate limit. The config holds no credentials and
// does not contain the real address; for code that opens connections by itself,
// as for exec and port-forward, use [Cluster.RESTConfig] instead. Requests
// other than watches end after Options.RequestTimeout; warnings that the server
// sends are dropped. TransportConfig does no I/O. The error is [ErrClosed], or
// [ErrUnknownCluster] if the cluster is not known.
func (h Cluster) TransportConfig() (*rest.Config, error) {
	c, err := h.cc.find(h.key), ErrUnknownCluster
	if h.cc.ctx.Err() != nil {
		c, err = nil, ErrClosed
	}
	if c == nil {
		return nil, &ClusterError{Cluster: h.key, Op: "transport config", Err: err}
	}
	return &rest.Config{
		Host:                      c.conn.Transport().URL(),
		Transport:                 &follower{cc: h.cc, key: h.key},
		QPS:                       -1,
		UserAgent:                 h.cc.options.UserAgent,
		WarningHandlerWithContext: rest.NoWarnings{},
	}, nil
}

// Owned reports whether this replica owns the cluster, known or not, and may
// begin work on it: whether its changes lead to requests here. It obeys the
// clock: it is false from the moment at which the replica's lease ends, whether
// that was noticed or not. It is true for every cluster without
// Options.Sharding. It does no I/O.
//
// Any key has one owner, so Owned is also a predicate for objects of the hub.
// Those that it leaves out have to be requested when the replica gains them:
// where they have the names of clusters, the Gained event of a ClusterSource
// does that.
func (h Cluster) Owned() bool { return h.cc.tenure.Owns(h.key) }

// Work begins work on the cluster, such as a reconcile, for which this replica
// has to own it. Its context ends, with the cause [ErrNotOwner], when the
// cluster is lost, and when the replica's lease ends by the clock. If it is
// handed over, the new owner waits for the work, and the context ends shortly
// before it stops waiting. The returned function ends the work, and has to be
// called. The error wraps [ErrNotOwner]. Work does no I/O; without
// Options.Sharding it returns ctx.
//
// The lease is no deadline of the context, since renewals move its end on: a
// timeout that is derived from a context with a sooner deadline never ends by
// itself. Each write has the deadline that the lease sets at that moment.
func (h Cluster) Work(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, done, err := h.cc.tenure.Begin(ctx, h.key)
	if err != nil {
		return nil, nil, &ClusterError{Cluster: h.key, Op: "work", Err: err}
	}
	return ctx, done, nil
}
