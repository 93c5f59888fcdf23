// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
)

// hooks returns what the clients handed out call.
func (c *cluster) hooks() liveclient.Hooks {
	return liveclient.Hooks{
		Failed: c.failed,
		Begin:  c.wants.BeginShowing,
		Write: func(ctx context.Context, call func(context.Context) error) error {
			return c.fleet.tenure.Write(ctx, c.key, call)
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
			key.Name, _ = lo.FieldSelector.RequiresExactMatch(watchset.FieldName)
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

// AddIndex adds to Options.Indexes, for the given clusters, known or not, or
// for all if none is given, until remove is called. Cached objects are indexed
// before AddIndex returns. The error is an [*OptionError], or wraps
// [ErrIndexExists].
func (cc *ClusterCache) AddIndex(x Index, clusters ...client.ObjectKey) (remove func(), err error) {
	if err := errors.Join(x.validate("Index")...); err != nil {
		return nil, err
	}
	added, err := cc.clusters.indexes.add(x, clusters)
	if err != nil {
		return nil, err
	}

	for _, c := range cc.clusters.all() {
		if !added.appliesTo(c.key) {
			continue
		}
		for _, want := range c.wants.Of(x.GVK) {
			cc.clusters.indexes.addTo(want.Lease(), c.key, x.GVK)
		}
	}

	return func() { cc.clusters.indexes.remove(added) }, nil
}

// follower sends requests to the current transport of a cluster: a cluster that
// was forgotten and created again has another one.
type follower struct {
	fleet *clusters
	key   client.ObjectKey
}

// RoundTrip implements http.RoundTripper.
func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := f.fleet.known(f.key, "request")
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}

	guarded := c.conn.Guard(c.conn.Transport().Client().Transport)
	bounded := liveclient.NewDeadline(guarded, f.fleet.options.RequestTimeout)
	permit := func(ctx context.Context) (context.Context, context.CancelFunc, error) {
		return f.fleet.tenure.Permit(ctx, f.key)
	}
	explain := func(ctx context.Context, err error) error { return f.fleet.tenure.Explain(ctx, f.key, err) }

	return liveclient.NewPermitted(bounded, permit, explain).RoundTrip(req)
}
