// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
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
		Rediscovered:    c.wants.Kinds.RemapNow,
	})
}

// hooks returns what the clients handed out call.
func (c *cluster) hooks() liveclient.Hooks {
	return liveclient.Hooks{
		Failed: c.failed,
		Begin:  c.wants.Seen.Begin,
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
	gvk, err := apiutil.GVKForObject(obj, c.c.cc.options.Scheme)
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	pending := c.c.writes.Of(gvk, key)
	if err != nil || pending == nil { // with an error the read fails
		return c.c.reader
	}
	r := *c.c.reader
	r.written = pending
	return &r
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

// AddIndex adds to Options.Indexes, for the given clusters, known or not, or
// for all if none is given, until remove is called. Cached objects are indexed
// before AddIndex returns. The error is an [*OptionError], or wraps
// [ErrIndexExists].
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
		for _, want := range c.wants.Index.Of(x.GVK) {
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
