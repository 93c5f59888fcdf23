// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/informerpool"
)

// newLive returns the factory of a cluster's live client.
func newLive(c *cluster) *liveclient.Factory {
	o, through := &c.cc.options, c.conn.Transport()
	return liveclient.NewFactory(liveclient.Config{
		URL:             through.URL(),
		Unary:           c.conn.Guard(through.Client().Transport),
		Stream:          c.conn.Guard(through.StreamClient().Transport),
		CheckRedirect:   through.Client().CheckRedirect,
		Scheme:          o.Scheme,
		Mapper:          c.mapper,
		Timeout:         o.RequestTimeout,
		RefreshInterval: o.RetryInterval,
		MaxBytes:        o.MaxLiveBytes,
		MaxObjectBytes:  o.Informers.MaxObjectBytes,
		Rediscovered:    c.wants.RemapNow,
	})
}

// Client returns a client for a cluster. It reads as Reader does, or, with
// Options.ReadYourWrites, no less than what was written before, and writes to
// the API server. Client does no I/O; its result can be kept for as long as the
// cluster is known. While the cluster is not connected, writes fail at once
// with [ErrNotConnected]; writes to a cluster that another replica owns fail
// with [ErrNotOwner]. Errors of writes are a [*ClusterError], which
// apierrors.IsConflict and the like unwrap. Warnings that the server sends are
// dropped, since they are its text; a client that is made from
// [ClusterCache.TransportConfig] with a WarningHandlerWithContext of its own
// gets them.
//
// Beware of Get, Extract and Apply: an apply configuration extracted from an
// object without managedFields is empty, and applying it removes everything
// that its manager owns. Pass [ForApply] to such a Get; it matters where
// Informers.DropManagedFields or a transform leaves managedFields out of the
// cache.
func (cc *ClusterCache) Client(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "client", Err: err}
	}
	return &cachedClient{Client: liveclient.Named(live, c.hooks()), c: c}, nil
}

// LiveClient is Client without the cache: reads go to the API server as well,
// whatever is watched.
func (cc *ClusterCache) LiveClient(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "live client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "live client", Err: err}
	}
	return liveclient.Named(live, c.hooks()), nil
}

// hooks returns what the clients handed out call.
func (c *cluster) hooks() liveclient.Hooks {
	return liveclient.Hooks{
		Failed: c.failed,
		Begin:  c.wants.BeginShowing,
		Write: func(ctx context.Context, call func(context.Context) error) error {
			return c.cc.tenure.Write(ctx, c.key, call)
		},
		Writes: c.writes,
	}
}

// failed returns the error of an operation on a kind.
func (c *cluster) failed(op string, gvk schema.GroupVersionKind, err error) error {
	return &ClusterError{
		Cluster: c.key,
		GVK:     gvk,
		Op:      op,
		Err:     err,
	}
}

// Owns reports whether this replica owns a cluster, known or not, and may begin
// work on it: whether its changes lead to requests here. It obeys the clock: it
// is false from the moment at which the replica's lease ends, whether that was
// noticed or not. It is true for every cluster without Options.Sharding. It does
// no I/O.
//
// Any key has one owner, so Owns is also a predicate for objects of the hub.
// Those that it leaves out have to be requested when the replica gains them:
// where they have the names of clusters, the Gained event of a ClusterSource
// does that.
func (cc *ClusterCache) Owns(cluster client.ObjectKey) bool { return cc.tenure.Owns(cluster) }

// Work begins work on a cluster, such as a reconcile, for which this replica
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
func (cc *ClusterCache) Work(
	ctx context.Context, cluster client.ObjectKey,
) (context.Context, context.CancelFunc, error) {
	ctx, done, err := cc.tenure.Begin(ctx, cluster)
	if err != nil {
		return nil, nil, &ClusterError{Cluster: cluster, Op: "work", Err: err}
	}
	return ctx, done, nil
}

// known returns a known cluster, or the reason why it cannot be used.
func (cc *ClusterCache) known(cluster client.ObjectKey, op string) (*cluster, error) {
	err := ErrUnknownCluster
	if cc.ctx.Err() != nil {
		err = ErrClosed
	} else if !cc.live.Load() && cc.find(cluster) == nil {
		cc.used()
		err = fmt.Errorf("%w: %w", err, ErrNotStarted) // Discover may make it known
	} else if c := cc.find(cluster); c != nil && c.conn.View().Phase != phase.Gone {
		return c, nil
	}

	return nil, &ClusterError{Cluster: cluster, Op: op, Err: err}
}

// cachedClient is a live client with cached reads, which show what was written
// before if Options.ReadYourWrites is set.
type cachedClient struct {
	client.Client

	c *cluster
}

// Get implements client.Reader.
func (c *cachedClient) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	if c.c.writes.Any() && !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		if p := c.written(obj, key); p != nil {
			opts = append(slices.Clip(opts), toShow{p})
		}
	}
	return c.c.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if !c.c.writes.Any() {
		return c.c.reader.List(ctx, list, opts...)
	}
	lo := (&client.ListOptions{}).ApplyOptions(opts)
	if !lo.DisableReadYourWritesConsistency {
		key := client.ObjectKey{Namespace: lo.Namespace}
		if lo.FieldSelector != nil {
			key.Name, _ = lo.FieldSelector.RequiresExactMatch(watchset.FieldName)
		}
		if p := c.written(list, key); p != nil {
			opts = append(slices.Clip(opts), toShow{p})
		}
	}

	return c.c.reader.List(ctx, list, opts...)
}

// written returns the writes that a read has to show, or nil.
func (c *cachedClient) written(obj runtime.Object, key client.ObjectKey) *writes.Pending {
	gvk, err := apiutil.GVKForObject(obj, c.c.cc.options.Scheme)
	if err != nil {
		return nil // the read fails
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return c.c.writes.Of(gvk, key)
}

// RESTConfig returns a copy of the cluster's current REST config, for making
// your own clients. It holds credentials and does not follow their rotation;
// its requests are not rate-limited by the ClusterCache, and if it names a
// credential plugin, they wait for that without a limit, as client-go does. It
// fails while the cluster is not connected.
func (cc *ClusterCache) RESTConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.known(cluster, "REST config")
	if err != nil {
		return nil, err
	}
	if v := c.conn.View(); v.Connected && !v.Access.IsZero() {
		return v.Access.Config(), nil
	}
	return nil, &ClusterError{Cluster: cluster, Op: "REST config", Err: c.WhyNot()}
}

// RESTMapper returns the mapper of a cluster. Clusters that serve the same
// kinds share its data. Its methods may query the API server.
func (cc *ClusterCache) RESTMapper(cluster client.ObjectKey) (meta.RESTMapper, error) {
	c, err := cc.known(cluster, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}

// IsNamespaced reports whether the objects of a kind have a namespace in a
// cluster. It does no I/O: known is false if the cluster is unknown, if its
// discovery has not been queried for the kind yet, or if the kind is not
// served.
func (cc *ClusterCache) IsNamespaced(cluster client.ObjectKey, gvk schema.GroupVersionKind) (namespaced, known bool) {
	c := cc.find(cluster)
	if c == nil {
		return false, false
	}
	mapping, known := c.mapper.Cached(gvk)
	return mapping.Namespaced, known
}

// Reader returns a reader of a cluster. It never fails and does no I/O; its
// reads return the errors, as a [*ClusterError], or as the API server reported
// them. The reader can be kept for as long as the ClusterCache. Objects that
// are read belong to the caller, unless the option client.UnsafeDisableDeepCopy
// says that they are not changed, and name their kind. [ReadMode] selects where
// they come from. Read with [ForApply] if an apply configuration is extracted
// from the object.
func (cc *ClusterCache) Reader(cluster client.ObjectKey) client.Reader {
	if c := cc.find(cluster); c != nil {
		return c.reader
	}
	return &reader{cc: cc, key: cluster, mode: cc.options.ReadMode}
}

// TransportConfig returns a config for your own clients whose requests take the
// same route as the ClusterCache's: they follow changes of credentials and
// address, and the return of a removed cluster; they fail at once with
// [ErrNotConnected] or [ErrUnknownCluster] where there is no connection, and
// with [ErrNotOwner], apart from GET, where another replica owns the cluster;
// and they count in the cluster's rate limit. The config holds no credentials and
// does not contain the real address; for code that opens connections by itself,
// as for exec and port-forward, use [ClusterCache.RESTConfig] instead. Requests
// other than watches end after Options.RequestTimeout; warnings that the server
// sends are dropped. TransportConfig does no I/O. The error is [ErrClosed], or
// [ErrUnknownCluster] if the cluster is not known.
func (cc *ClusterCache) TransportConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.find(cluster), ErrUnknownCluster
	if cc.ctx.Err() != nil {
		c, err = nil, ErrClosed
	}
	if c == nil {
		return nil, &ClusterError{Cluster: cluster, Op: "transport config", Err: err}
	}
	return &rest.Config{
		Host:                      c.conn.Transport().URL(),
		Transport:                 &follower{cc: cc, key: cluster},
		QPS:                       -1,
		UserAgent:                 cc.options.UserAgent,
		WarningHandlerWithContext: rest.NoWarnings{},
	}, nil
}

// WaitConnected waits until a known cluster is connected, for the first time or
// again. It returns at once if the cluster is connected already. The error is
// [ErrUnknownCluster] if the cluster is not known, or is forgotten meanwhile,
// and [ErrClosed] if the ClusterCache ends first. If ctx ends first, the error
// wraps the cause of ctx and [ErrNotConnected], and gives the reason why the
// cluster is not connected.
func (cc *ClusterCache) WaitConnected(ctx context.Context, cluster client.ObjectKey) error {
	fail := func(err error) error { return &ClusterError{Cluster: cluster, Op: "wait for connection", Err: err} }
	for {
		c := cc.find(cluster)
		switch {
		case cc.ctx.Err() != nil:
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
		case <-cc.ctx.Done():
		case <-ctx.Done():
			return fail(fmt.Errorf("%w: %w", context.Cause(ctx), c.WhyNot()))
		}
	}
}

// endpoint returns where the informers of a cluster send their requests. It
// blocks while the cluster is not connected.
func (cc *ClusterCache) endpoint(ctx context.Context, key client.ObjectKey) (informerpool.Endpoint, error) {
	for {
		c := cc.find(key)
		switch {
		case cc.ctx.Err() != nil: // a cluster closed by Stop would be found forever
			return informerpool.Endpoint{}, ErrClosed
		case c == nil:
			return informerpool.Endpoint{}, ErrUnknownCluster
		}

		v := c.conn.View()
		if v.Connected {
			return informerpool.Endpoint{Client: v.Client, URL: c.conn.Transport().URL(), Epoch: v.Epoch}, nil
		}
		select {
		case <-v.Up:
		case <-c.conn.Done(): // there may be a new cluster with this key
		case <-ctx.Done():
			return informerpool.Endpoint{}, context.Cause(ctx)
		}
	}
}

// AddIndex makes a field selectable in reads of cached objects, like
// Options.Indexes: in the given clusters, known or not, or in all if none is
// given. The index lasts, however often informers start and stop, until remove
// is called, which may be done more than once. Objects that are already cached
// are indexed before AddIndex returns; it does no I/O. The error is an
// [*OptionError], or wraps [ErrIndexExists].
func (cc *ClusterCache) AddIndex(x Index, clusters ...client.ObjectKey) (remove func(), err error) {
	if err := errors.Join(x.validate("Index")...); err != nil {
		return nil, err
	}
	added, err := cc.indexes.add(x, clusters)
	if err != nil {
		return nil, err
	}

	for _, c := range cc.all() {
		if !added.appliesTo(c.key) {
			continue
		}
		for _, want := range c.wants.Of(x.GVK) {
			cc.addIndexes(c, want.Lease(), x.GVK)
		}
	}

	return func() { cc.indexes.remove(added) }, nil
}

// addIndexes adds the indexes that an informer lacks.
func (cc *ClusterCache) addIndexes(c *cluster, lease *informerpool.Lease, gvk schema.GroupVersionKind) {
	for _, x := range cc.indexes.of(c.key, gvk) {
		err := lease.TryAddIndex(x.name, func(o *informerpool.Object) ([]string, error) { return x.valuesOf(cc, c, o) })
		if err != nil && !errors.Is(err, informerpool.ErrIndexExists) && !errors.Is(err, informerpool.ErrReleased) &&
			!errors.Is(err, informerpool.ErrClosed) {
			cc.log.Error(err, "Index cannot be added", "cluster", c.name, "field", x.Field)
		}
	}
}

// Indexed reports whether reads of cached objects of a cluster can select by a
// field, either by an index or because the field is part of every object's
// name.
func (cc *ClusterCache) Indexed(cluster client.ObjectKey, gvk schema.GroupVersionKind, field string) bool {
	return field == "metadata.name" || field == "metadata.namespace" || cc.indexes.find(cluster, gvk, field) != nil
}

// follower sends requests to the current transport of a cluster: a cluster that
// was forgotten and created again has another one.
type follower struct {
	cc  *ClusterCache
	key client.ObjectKey
}

// RoundTrip implements http.RoundTripper.
func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := f.cc.known(f.key, "request")
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}

	guarded := c.conn.Guard(c.conn.Transport().Client().Transport)
	bounded := liveclient.NewDeadline(guarded, f.cc.options.RequestTimeout)
	permit := func(ctx context.Context) (context.Context, context.CancelFunc, error) {
		return f.cc.tenure.Permit(ctx, f.key)
	}
	explain := func(ctx context.Context, err error) error { return f.cc.tenure.Explain(ctx, f.key, err) }

	return liveclient.NewPermitted(bounded, permit, explain).RoundTrip(req)
}
