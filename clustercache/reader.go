// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// reader reads one cluster. It refers to the cluster by name: it can be used
// before the cluster is known, and after the cluster was removed and returned.
//
//	Get, List ──► wants that cover it, widest first: usable? outdated? ──► cache
//	                    │ none                      │ no answer
//	                    └─────────────┬─────────────┘
//	                                  ▼
//	            PreferCache, AutoWatch: API server; CacheOnly: error
type reader struct {
	fleet *clusters
	key   client.ObjectKey
	mode  ReadMode

	written *writes.Pending // what reads have to show; nil: nothing
}

var _ client.Reader = (*reader)(nil)

var (
	errReadIntoNil = errors.New("the object or list to read into is nil")
	errNoName      = errors.New("the name of the object is empty")
)

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	o := r.getOptions(opts)
	gvk, err := apiutil.GVKForObject(obj, r.fleet.options.Scheme)
	switch {
	case err != nil && isNil(obj):
		return r.fail(gvk, "get", errReadIntoNil)
	case err != nil:
		return r.fail(gvk, "get", err)
	case key.Name == "":
		return r.fail(gvk, "get", errNoName)
	}
	c, err := r.cluster(ctx, &o, wants.Selection{GVK: gvk})
	if err == nil {
		if o.written != nil {
			x := c.wants.Index
			c.caches.catchUp(ctx, &o, append(x.Covering(nil, gvk, key), x.Partial(gvk, key.Namespace)...))
		}
		err = c.caches.get(&o, gvk, key, obj)
	}

	if errors.Is(err, errLive) {
		err = c.server.read(ctx, &o, func(ctx context.Context, live client.Reader) error {
			return live.Get(ctx, key, obj, opts...)
		})
		switch {
		case err == nil:
			nameKind(obj, gvk)
			c.wants.Seen.Object(gvk, obj)
		case o.written != nil && apistatus.SaysAbsent(err) && (&client.GetOptions{}).ApplyOptions(opts).Raw == nil:
			o.written.Absent()
		}
	}

	return r.fail(gvk, "get", err)
}

// options returns the options of a read that has none of its own.
func (r *reader) options() readOptions {
	return readOptions{mode: r.mode, share: r.fleet.options.UnsafeDisableDeepCopy, written: r.written}
}

// getOptions returns the options of a Get.
func (r *reader) getOptions(opts []client.GetOption) readOptions {
	o := r.options()
	for _, opt := range opts {
		if own, ok := opt.(readOption); ok {
			own.applyToRead(&o)
			continue
		}
		var other client.GetOptions
		opt.ApplyToGet(&other)
		o.share = ptr.Deref(other.UnsafeDisableDeepCopy, o.share)
	}
	return o
}

// listOptions separates the options of reads from those of lists.
func (r *reader) listOptions(opts []client.ListOption) (readOptions, client.ListOptions, error) {
	o, lo := r.options(), client.ListOptions{}
	for _, opt := range opts {
		if own, ok := opt.(readOption); ok {
			own.applyToRead(&o)
		} else {
			opt.ApplyToList(&lo)
		}
	}
	o.share = ptr.Deref(lo.UnsafeDisableDeepCopy, o.share)
	return o, lo, listopts.Resolve(&lo)
}

// List implements client.Reader. Cached lists are in no order, and select by
// labels, by the fields metadata.name and metadata.namespace, and by those of
// Options.Indexes. A list that is cut at Limit has a continue token, so that it
// does not look complete, but it cannot be continued: a List with that token
// fails with [ErrUnsupported].
//
// The API server does not know fields that exist only in an index. Where it has
// to answer such a list, for example before the informer has listed, it is
// queried without the field, and the objects are selected here, up to 10,000 of
// them; beyond that the list fails with [ErrUnsupported]. A list never waits
// for an informer.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o, lo, invalid := r.listOptions(opts)
	gvk, err := apiutil.GVKForObject(list, r.fleet.options.Scheme)
	switch {
	case err != nil && isNil(list):
		return r.fail(gvk, "list", errReadIntoNil)
	case err != nil:
		return r.fail(gvk, "list", err)
	case invalid != nil:
		return r.fail(gvk, "list", invalid)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	c, err := r.cluster(ctx, &o, wants.Selection{GVK: gvk})
	if err == nil {
		if o.written != nil {
			covering, _ := c.caches.coverList(&o, gvk, &lo)
			c.caches.catchUp(ctx, &o, covering)
		}
		err = c.caches.list(&o, gvk, &lo, list)
	}

	if errors.Is(err, errLive) {
		err = c.server.read(ctx, &o, func(ctx context.Context, live client.Reader) error {
			return c.server.list(ctx, live, gvk, &lo, list)
		})
		if err == nil {
			nameKinds(list, gvk)
			c.wants.Seen.List(gvk, list)
			if o.written != nil && lo.Continue == "" && (lo.Raw == nil || lo.Raw.ResourceVersion == "") {
				o.written.Listed(list.GetResourceVersion(), lacking(list, &lo))
			}
		}
		err = unindexed(err, &lo)
	}

	return r.fail(gvk, "list", err)
}

// ListPacked is List without the decoding, for package fleet.
func (r *reader) ListPacked(
	ctx context.Context, kind client.Object, live bool, opts ...client.ListOption,
) ([]*informerpool.Object, bool, error) {
	o, lo, invalid := r.listOptions(opts)
	gvk, err := apiutil.GVKForObject(kind, r.fleet.options.Scheme)
	if err = cmp.Or(err, invalid); err != nil {
		return nil, false, r.fail(gvk, "list", err)
	}
	c, err := r.cluster(ctx, &o, wants.Selection{GVK: gvk})
	if err == nil {
		var found selected
		if found, err = c.caches.selectAll(&o, gvk, &lo); err == nil {
			return found.objects, false, nil
		}
	}
	if !errors.Is(err, errLive) {
		return nil, false, r.fail(gvk, "list", err)
	}
	if !live {
		return nil, true, nil
	}

	// Look the kind up first: client-go would not end that with ctx.
	if _, _ = c.mapper.ResourceFor(ctx, gvk); ctx.Err() != nil {
		return nil, false, r.fail(gvk, "list", context.Cause(ctx))
	}
	var objects []*informerpool.Object
	_, metadata := kind.(*metav1.PartialObjectMetadata)
	err = c.server.read(ctx, &o, func(ctx context.Context, live client.Reader) (err error) {
		objects, err = c.server.listPacked(ctx, live, gvk, &lo, metadata)
		return err
	})
	if err != nil {
		return nil, false, r.fail(gvk, "list", err)
	}
	c.wants.Seen.Packed(gvk, objects)

	return objects, false, nil
}

// Decode decodes an object of ListPacked.
func (r *reader) Decode(o *informerpool.Object, dst client.Object) error {
	return r.fleet.pool.Decode(o, dst)
}

// unindexed adds what to do to the API server's answer that it does not know the
// field that a list selects by.
func unindexed(err error, lo *client.ListOptions) error {
	unsupported := apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "field label not supported")
	if !unsupported || lo.FieldSelector == nil {
		return err
	}
	return fmt.Errorf("%w: add an index of the field (Options.Indexes) and watch the kind", err)
}

// lacking returns a function that reports whether an object with these labels
// would be in the answer to a list, and is not.
func lacking(list client.ObjectList, lo *client.ListOptions) func(client.ObjectKey, map[string]string) bool {
	if list.GetContinue() != "" || lo.FieldSelector != nil && !lo.FieldSelector.Empty() {
		return func(client.ObjectKey, map[string]string) bool { return false } // it may be one of the others
	}
	has := map[client.ObjectKey]struct{}{}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(client.Object); ok {
			has[client.ObjectKeyFromObject(obj)] = struct{}{}
		}
		return nil
	})
	return func(key client.ObjectKey, of map[string]string) bool {
		_, found := has[key]
		return !found && (lo.LabelSelector == nil || lo.LabelSelector.Matches(labels.Set(of)))
	}
}

// nameKind sets the type meta that client-go omits from typed objects, as
// cached reads do: the result of a read does not depend on what answered it.
func nameKind(obj runtime.Object, gvk schema.GroupVersionKind) {
	if kind := obj.GetObjectKind(); kind.GroupVersionKind().Empty() {
		kind.SetGroupVersionKind(gvk)
	}
}

// nameKinds is nameKind for the objects of a list.
func nameKinds(list client.ObjectList, gvk schema.GroupVersionKind) {
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		nameKind(o, gvk)
		return nil
	})
}

// fail names the cluster and the kind in an error, unless the API server
// answered that there is no such object: that is no failure. No other failure
// is mistaken for that answer.
func (r *reader) fail(gvk schema.GroupVersionKind, op string, err error) error {
	if err == nil || apistatus.SaysAbsent(err) {
		return err
	}
	if !apistatus.IsAnswer(err) {
		err = apistatus.AboutOther(err)
	}
	return clusterError(op, r.key, gvk, err)
}

// cluster returns the cluster if a read may proceed, with an informer under way
// if the mode requires one.
func (r *reader) cluster(ctx context.Context, o *readOptions, id wants.Selection) (*cluster, error) {
	if r.fleet.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := r.fleet.find(r.key)
	if o.mode == AutoWatch {
		var err error
		if c, _, err = r.fleet.acquire(r.key, id, true); err != nil {
			return nil, ErrClosed
		}
	}

	switch {
	case c == nil && !r.fleet.live.Load():
		r.fleet.used()
		return nil, ErrNotStarted // Discover may make it known
	case c == nil:
		return nil, ErrUnknownCluster
	}

	v := c.conn.View()
	switch {
	case v.Connected:
		return c, nil
	case v.Phase == phase.Gone && o.mode != AutoWatch:
		return nil, ErrUnknownCluster
	case o.mode == CacheOnly && o.maxAge > 0:
		return c, nil
	}

	return nil, c.WhyNot()
}
