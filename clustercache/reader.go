// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/phase"
)

// reader reads one cluster. It follows the cluster: it is good before the cluster is known, and after it came back.
type reader struct {
	cc   *ClusterCache
	key  client.ObjectKey
	mode ReadMode
}

var _ client.Reader = (*reader)(nil)

// Reader returns a reader of a cluster. It never fails and does no I/O; what is wrong is told by its reads, in a
// [*ClusterError], or as the API server said it. It can be kept for as long as the ClusterCache.
// Objects that are read belong to the caller. [ReadMode] says where they come from.
func (cc *ClusterCache) Reader(cluster client.ObjectKey) client.Reader {
	if c := cc.find(cluster); c != nil {
		return c.reader
	}
	return &reader{cc: cc, key: cluster, mode: cc.options.ReadMode}
}

// errLive tells that the API server has to be asked.
var errLive = errors.New("ask the API server")

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	o := readOptions{mode: r.mode}
	for _, opt := range opts {
		if own, ok := opt.(readOption); ok {
			own.applyToRead(&o)
		}
	}
	gvk, err := apiutil.GVKForObject(obj, r.cc.options.Scheme)
	if err != nil {
		return r.fail(gvk, "get", err)
	}
	c, err := r.cluster(ctx, &o, watchID{gvk: gvk})
	if err == nil {
		err = c.getCached(&o, gvk, key, obj)
	}
	if errors.Is(err, errLive) {
		return r.fail(gvk, "get", c.liveRead(&o, func(live client.Client) error { return live.Get(ctx, key, obj, opts...) }))
	}
	return r.fail(gvk, "get", err)
}

// List implements client.Reader. Cached lists are in no order, select by labels, by the fields metadata.name and
// metadata.namespace and by those of Options.Indexes, and are cut at Limit without a continue token.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o, lo := readOptions{mode: r.mode}, client.ListOptions{}
	for _, opt := range opts {
		if own, ok := opt.(readOption); ok {
			own.applyToRead(&o)
		} else {
			opt.ApplyToList(&lo)
		}
	}
	gvk, err := apiutil.GVKForObject(list, r.cc.options.Scheme)
	if err != nil {
		return r.fail(gvk, "list", err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	c, err := r.cluster(ctx, &o, watchID{gvk: gvk})
	if err == nil {
		err = c.listCached(&o, gvk, &lo, list)
	}
	if errors.Is(err, errLive) {
		return r.fail(gvk, "list", c.liveRead(&o, func(live client.Client) error { return live.List(ctx, list, &lo) }))
	}
	return r.fail(gvk, "list", err)
}

// fail names the cluster and the kind, unless the API server answered that there is no such object: that is no failure.
func (r *reader) fail(gvk schema.GroupVersionKind, op string, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return &ClusterError{Cluster: r.key, GVK: gvk, Op: op, Err: err}
}

// cluster returns the cluster if a read may go on, with an informer under way if the mode asks for it.
func (r *reader) cluster(ctx context.Context, o *readOptions, id watchID) (*cluster, error) {
	if r.cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := r.cc.find(r.key)
	if o.mode == AutoWatch {
		var err error
		if c, _, err = r.cc.hold(r.key, id, true); err != nil {
			return nil, ErrClosed
		}
	}
	if c == nil {
		return nil, ErrUnknownCluster
	}
	v := c.view.Load()
	switch {
	case v.connected:
		return c, nil
	case v.phase == phase.Gone && o.mode != AutoWatch:
		return nil, ErrUnknownCluster
	case o.mode == CacheOnly && o.maxAge > 0:
		return c, nil
	}
	return nil, c.whyNot()
}

// whyNot is why a cluster that is not connected is not.
func (c *cluster) whyNot() error {
	if err := c.view.Load().err; err != nil {
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return ErrNotConnected
}

// usable tells whether what a hold has cached may answer a read, and notes where it comes from. The error is errLive where
// the API server is to be asked instead.
func (c *cluster) usable(o *readOptions, h *hold) error {
	instead := func(err error) error {
		if o.mode == CacheOnly {
			return err
		}
		return errLive
	}
	v := c.view.Load()
	if !h.lease.HasSynced() || h.lease.Epoch() != v.epoch {
		return instead(ErrNotSynced)
	}
	if o.maxAge == 0 && o.atLeast == "" && o.origin == nil {
		return nil
	}
	s := h.lease.Status()
	if o.maxAge > 0 && time.Since(s.LastProof) > o.maxAge {
		return instead(fmt.Errorf("%w: last sign of life %s ago", ErrStale, time.Since(s.LastProof).Round(time.Second)))
	}
	if o.atLeast != "" {
		order, err := resourceversion.CompareResourceVersion(s.ResourceVersion, o.atLeast)
		if err != nil {
			return fmt.Errorf("%w: resourceVersion %q: %w", ErrUnsupported, o.atLeast, err)
		}
		if order < 0 {
			return instead(fmt.Errorf("%w: at resourceVersion %s", ErrStale, s.ResourceVersion))
		}
	}
	if o.origin != nil {
		*o.origin = Origin{
			Cached: true, Connected: v.connected, Epoch: string(s.Epoch), ResourceVersion: s.ResourceVersion, Proof: s.LastProof,
		}
	}
	return nil
}

// getCached reads one object from the cache.
func (c *cluster) getCached(o *readOptions, gvk schema.GroupVersionKind, key client.ObjectKey, obj client.Object) error {
	err := notWatched(o)
	for _, h := range c.holds.of(gvk) {
		if h.id.namespace != "" && h.id.namespace != key.Namespace {
			continue
		}
		if why := c.usable(o, h); why != nil {
			err = why
			continue
		}
		switch found := h.lease.GetInto(key.Namespace, key.Name, obj); {
		case found == nil:
			return nil
		case errors.Is(found, informerpool.ErrReleased): // at this moment
		case apierrors.IsNotFound(found) && h.id.labels+h.id.fields != "":
			// It may exist and not be selected.
		default:
			return translate(found)
		}
	}
	return err
}

// notWatched is the answer where no informer covers a read.
func notWatched(o *readOptions) error {
	if o.mode == CacheOnly {
		return ErrNotWatched
	}
	return errLive
}

// liveRead asks the API server.
func (c *cluster) liveRead(o *readOptions, read func(client.Client) error) error {
	live, err := c.writer.get(c)
	if err != nil {
		return err
	}
	v := c.view.Load()
	if err := read(live); err != nil {
		return err
	}
	if o.origin != nil {
		*o.origin = Origin{Connected: true, Epoch: string(v.epoch), Proof: time.Now()}
	}
	return nil
}
