// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// Cluster is a handle for the cluster of a key, known or not: a small value
// that can be kept and compared. Its methods do no I/O and do not wait, apart
// from WaitConnected.
type Cluster struct {
	cc  *ClusterCache
	key client.ObjectKey
}

// Cluster returns the handle for the cluster of a key. It makes nothing known.
func (cc *ClusterCache) Cluster(key client.ObjectKey) Cluster { return Cluster{cc: cc, key: key} }

// Key returns the key of the cluster.
func (h Cluster) Key() client.ObjectKey { return h.key }

// Engage makes the cluster known and keeps it connected until Disengage.
// Engaging a cluster again has no effect.
func (h Cluster) Engage() error {
	_, err := h.cc.clusters.engage(h.key, true)
	return err
}

// Disengage undoes Engage: the cluster is disconnected and forgotten once it
// has no watch, unless the resolver lists it (Options.Discover).
func (h Cluster) Disengage() {
	if c := h.cc.clusters.find(h.key); c != nil {
		c.unpin()
	}
}

// WaitConnected waits until the known cluster is connected, for the first time
// or again. The error is [ErrUnknownCluster], [ErrClosed], or, if ctx ends
// first, wraps its cause, [ErrNotConnected], and the reason.
func (h Cluster) WaitConnected(ctx context.Context) error {
	fail := func(err error) error { return &ClusterError{Cluster: h.key, Op: "wait for connection", Err: err} }
	for {
		c := h.cc.clusters.find(h.key)
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

// Status returns a snapshot of the cluster. The error is [ErrUnknownCluster].
func (h Cluster) Status() (status.Cluster, error) {
	c := h.cc.clusters.find(h.key)
	if c == nil {
		return status.Cluster{}, &ClusterError{Cluster: h.key, Op: "status", Err: ErrUnknownCluster}
	}
	return c.status(), nil
}

// Labels returns a copy of the cluster's labels, and whether they are known:
// from when the resolver first gives access to the cluster until it is gone.
func (h Cluster) Labels() (labels map[string]string, known bool) {
	c := h.cc.clusters.find(h.key)
	if c == nil {
		return nil, false
	}
	labels = maps.Clone(c.conn.View().Labels)
	return labels, labels != nil
}

// Reader returns a reader of the cluster, which can be kept for as long as the
// ClusterCache. It never fails; its reads return the errors, as a
// [*ClusterError], or as the API server reported them. [ReadMode], [ForApply]
// and other options select where they are answered from. Objects that are read
// belong to the caller, unless client.UnsafeDisableDeepCopy is passed.
func (h Cluster) Reader() client.Reader {
	if c := h.cc.clusters.find(h.key); c != nil {
		return c.reader
	}
	return &reader{fleet: h.cc.clusters, key: h.key, mode: h.cc.options.ReadMode}
}

// Client returns a client that reads as Reader does, or, with
// Options.ReadYourWrites, no less than what was written before, and writes to
// the API server. It can be kept for as long as the cluster is known. Errors of
// writes are a [*ClusterError], in which apierrors.IsConflict and the like find
// the server's answer; they wrap [ErrNotConnected] at once while the cluster is
// not connected, and [ErrNotOwner] where another replica owns it. Warnings of
// the server are dropped.
func (h Cluster) Client() (client.Client, error) {
	c, live, err := h.live("client")
	if err != nil {
		return nil, err
	}
	return &cachedClient{Client: live, c: c}, nil
}

// LiveClient is Client without the cache: reads go to the API server as well.
func (h Cluster) LiveClient() (client.Client, error) {
	_, live, err := h.live("live client")
	return live, err
}

func (h Cluster) live(op string) (*cluster, client.Client, error) {
	c, err := h.cc.clusters.known(h.key, op)
	if err != nil {
		return nil, nil, err
	}
	live, err := c.server.live.Client(c.hooks())
	if err != nil {
		return nil, nil, &ClusterError{Cluster: h.key, Op: op, Err: err}
	}
	return c, live, nil
}

// Watch acquires a kind in the cluster, and makes the cluster known. obj names
// the kind: a typed object, an unstructured one or [Kind]. client.InNamespace,
// MatchingLabels and MatchingFields narrow the watch. ctx is checked only at
// the start. Errors are [ErrClosed], ctx's, and those of an invalid kind or
// selector.
func (h Cluster) Watch(ctx context.Context, obj client.Object, opts ...client.ListOption) (*Watch, error) {
	id, err := newSelection(h.cc.options.Scheme, obj, opts)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, clusterError("watch", h.key, id.GVK, err)
	}

	return h.cc.clusters.watch(h.key, id)
}

// WatchAndRead is a Reader for reconcilers that name the kind that they read on
// every run. It takes an informer of the kind, which ends when neither
// WatchAndRead nor such a reader has used it for Options.IdleTimeout, and
// reports whether that answers reads now.
func (h Cluster) WatchAndRead(ctx context.Context, gvk schema.GroupVersionKind) (client.Reader, bool, error) {
	if ctx.Err() != nil {
		return nil, false, clusterError("watch", h.key, gvk, context.Cause(ctx))
	}
	c, w, err := h.cc.clusters.acquire(h.key, wants.Selection{GVK: gvk}, true)
	if err != nil {
		return nil, false, err
	}
	return &reader{fleet: h.cc.clusters, key: h.key, mode: AutoWatch}, c.unanswered(w) == nil, nil
}

// WatchStatuses returns a snapshot of every watch of the cluster, sorted by
// kind and selection. The error is [ErrUnknownCluster].
func (h Cluster) WatchStatuses() ([]status.Watch, error) {
	c := h.cc.clusters.find(h.key)
	if c == nil {
		return nil, &ClusterError{Cluster: h.key, Op: "watch status", Err: ErrUnknownCluster}
	}
	all := c.wants.All()
	slices.SortFunc(all, func(a, b *wants.Want) int { return a.Compare(b.Selection) })
	out := make([]status.Watch, len(all))
	for i, w := range all {
		out[i] = c.watchStatus(w)
	}

	return out, nil
}

// Serving returns nil if the cluster is connected, and each of the kinds is
// watched as a whole and synced: the cache answers all reads of them. The error
// joins a [*ClusterError] for the cluster, or for each kind, which [IsWaiting]
// and [ReasonOf] classify.
func (h Cluster) Serving(kinds ...client.Object) error {
	fail := func(gvk schema.GroupVersionKind, err error) error { return clusterError("serve", h.key, gvk, err) }
	r := &reader{fleet: h.cc.clusters, key: h.key}
	c, err := r.cluster(context.Background(), &readOptions{}, wants.Selection{})
	if err == nil {
		err = c.conn.OtherCluster()
	}
	if err != nil {
		return fail(schema.GroupVersionKind{}, err)
	}

	var errs []error
	for _, kind := range kinds {
		id, err := newSelection(h.cc.options.Scheme, kind, nil)
		whole, parts := false, 0
		for _, w := range c.wants.All() {
			if err != nil || w.GVK != id.GVK {
				continue
			}
			whole = whole || w.Selection == id || w.Whole()
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

// Indexed reports whether reads of cached objects of the cluster can select by
// a field: by an index, or by the object's namespace or name.
func (h Cluster) Indexed(gvk schema.GroupVersionKind, field string) bool {
	return field == wants.FieldName || field == wants.FieldNamespace || h.cc.indexes.find(h.key, gvk, field) != nil
}

// IsNamespaced reports whether the objects of a kind have a namespace. known is
// false until the cluster's discovery was queried for the kind and has it.
func (h Cluster) IsNamespaced(gvk schema.GroupVersionKind) (namespaced, known bool) {
	c := h.cc.clusters.find(h.key)
	if c == nil {
		return false, false
	}
	mapping, known := c.mapper.Cached(gvk)
	return mapping.Namespaced, known
}

// RESTMapper returns the mapper of the cluster, whose methods may query the API
// server.
func (h Cluster) RESTMapper() (meta.RESTMapper, error) {
	c, err := h.cc.clusters.known(h.key, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}

// RESTConfig returns a copy of the cluster's current REST config, for code that
// opens connections by itself, as for exec and port-forward; others use
// TransportConfig. It holds credentials, does not follow their rotation, and is
// not rate-limited. It fails while the cluster is not connected.
func (h Cluster) RESTConfig() (*rest.Config, error) {
	c, err := h.cc.clusters.known(h.key, "REST config")
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
// address, count in the cluster's rate limit, end after Options.RequestTimeout
// unless they are watches, and fail at once with [ErrNotConnected],
// [ErrUnknownCluster] or, apart from GET, [ErrNotOwner]. It holds no
// credentials and not the real address. The error is [ErrClosed] or
// [ErrUnknownCluster].
func (h Cluster) TransportConfig() (*rest.Config, error) {
	c, err := h.cc.clusters.find(h.key), ErrUnknownCluster
	if h.cc.ctx.Err() != nil {
		c, err = nil, ErrClosed
	}
	if c == nil {
		return nil, &ClusterError{Cluster: h.key, Op: "transport config", Err: err}
	}
	return &rest.Config{
		Host:                      c.conn.Transport().URL(),
		Transport:                 &follower{fleet: h.cc.clusters, key: h.key},
		QPS:                       -1,
		UserAgent:                 h.cc.options.UserAgent,
		WarningHandlerWithContext: rest.NoWarnings{},
	}, nil
}

// Owned reports whether this replica owns the cluster, known or not, and may
// begin work on it; it is true without Options.Sharding. It is false from the
// moment at which the replica's lease ends by the clock. As a predicate for
// objects of the hub it leaves out those that have to be requested when they
// are [events.Gained].
func (h Cluster) Owned() bool { return h.cc.tenure.Owns(h.key) }

// Work begins work on the cluster, such as a reconcile, for which this replica
// has to own it; the returned function ends it, and has to be called. The
// context ends, with the cause [ErrNotOwner], when the cluster is lost, when
// the replica's lease ends by the clock, and shortly before a new owner stops
// waiting for the work. The error wraps [ErrNotOwner]. Without
// Options.Sharding, Work returns ctx.
func (h Cluster) Work(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, done, err := h.cc.tenure.Begin(ctx, h.key)
	if err != nil {
		return nil, nil, &ClusterError{Cluster: h.key, Op: "work", Err: err}
	}
	return ctx, done, nil
}

// hooks returns what the clients handed out call.
func (c *cluster) hooks() liveclient.Hooks {
	return liveclient.Hooks{
		Failed: func(op string, gvk schema.GroupVersionKind, err error) error {
			return clusterError(op, c.key, gvk, err)
		},
		Begin: c.wants.Seen.Begin,
		Write: func(ctx context.Context, call func(context.Context) error) error {
			return c.fleet.tenure.Write(ctx, c.key, call)
		},
		Writes: c.writes,
	}
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
	r := c.c.reader
	if c.c.writes.Any() && !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		r = c.showing(obj, key)
	}
	return r.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r := c.c.reader
	if !c.c.writes.Any() {
		return r.List(ctx, list, opts...)
	}
	lo := (&client.ListOptions{}).ApplyOptions(opts)
	if !lo.DisableReadYourWritesConsistency {
		key := client.ObjectKey{Namespace: lo.Namespace}
		if lo.FieldSelector != nil {
			key.Name, _ = lo.FieldSelector.RequiresExactMatch(wants.FieldName)
		}
		r = c.showing(list, key)
	}
	return r.List(ctx, list, opts...)
}

// showing returns the reader for a read, which has to show earlier writes.
func (c *cachedClient) showing(obj runtime.Object, key client.ObjectKey) *reader {
	gvk, err := apiutil.GVKForObject(obj, c.c.fleet.options.Scheme)
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	pending := c.c.writes.Of(gvk, key)
	if err != nil || pending == nil { // with an error the read fails
		return c.c.reader
	}
	r := *c.c.reader
	r.written = pending
	return &r
}

// follower sends requests to the current transport of a cluster: a cluster that
// was forgotten and created again has another one.
type follower struct {
	fleet *clusters
	key   client.ObjectKey
}

// RoundTrip implements http.RoundTripper. A request that is no watch is bounded
// in time, and one that may change the cluster needs a permit; both last to the
// end of the response's body.
func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end := req.Context(), context.CancelFunc(func() {})
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
	c, err := f.fleet.known(f.key, "request")
	if err == nil && !reads {
		ctx, end, err = f.fleet.tenure.Permit(ctx, f.key)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	permitted, done := ctx, end
	if req.URL.Query().Get("watch") == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.fleet.options.RequestTimeout, liveclient.ErrDeadline)
		end = func() { cancel(); done() }
	}

	resp, err := c.conn.Guard(c.conn.Transport().Client().Transport).RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		if !reads {
			err = f.fleet.tenure.Explain(permitted, f.key, err)
		}
		return nil, err
	}
	resp.Body = &followedBody{ReadCloser: resp.Body, end: end}

	return resp, nil
}

// followedBody is the body of a response whose request ends with it.
type followedBody struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close implements io.Closer.
func (b *followedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
