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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/informerpool"
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
	cc   *ClusterCache
	key  client.ObjectKey
	mode ReadMode

	written *writes.Pending // what reads have to show; nil: nothing
}

var _ client.Reader = (*reader)(nil)

// errLive indicates that the API server has to be queried.
var errLive = errors.New("ask the API server")

var (
	errReadIntoNil = errors.New("the object or list to read into is nil")
	errNoName      = errors.New("the name of the object is empty")
	errNoNamespace = errors.New("the namespace of the object is empty, and the kind is in namespaces")
)

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	o := r.getOptions(opts)
	gvk, err := apiutil.GVKForObject(obj, r.cc.options.Scheme)
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
			c.catchUp(ctx, &o, append(x.Covering(nil, gvk, key), x.Partial(gvk, key.Namespace)...))
		}
		err = c.getCached(&o, gvk, key, obj)
	}

	if errors.Is(err, errLive) {
		err = c.liveRead(ctx, &o, func(ctx context.Context, live client.Reader) error {
			return live.Get(ctx, key, obj, opts...)
		})
		switch {
		case err == nil:
			nameKind(obj, gvk)
			c.wants.Seen.Object(gvk, obj)
		case o.written != nil && apistatus.SaysAbsent(err) && (&client.GetOptions{}).ApplyOptions(opts).Raw == nil:
			o.written.Absent()
		}
		return r.fail(gvk, "get", err)
	}

	return r.fail(gvk, "get", err)
}

// options returns the options of a read that has none of its own.
func (r *reader) options() readOptions {
	return readOptions{mode: r.mode, share: r.cc.options.UnsafeDisableDeepCopy, written: r.written}
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
	gvk, err := apiutil.GVKForObject(list, r.cc.options.Scheme)
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
			covering, _ := c.coverList(&o, gvk, &lo)
			c.catchUp(ctx, &o, covering)
		}
		err = c.listCached(&o, gvk, &lo, list)
	}

	if errors.Is(err, errLive) {
		err = c.liveRead(ctx, &o, func(ctx context.Context, live client.Reader) error {
			return c.listLive(ctx, live, gvk, &lo, list)
		})
		if err == nil {
			nameKinds(list, gvk)
			c.wants.Seen.List(gvk, list)
			if o.written != nil && lo.Continue == "" && (lo.Raw == nil || lo.Raw.ResourceVersion == "") {
				o.written.Listed(list.GetResourceVersion(), lacking(list, &lo))
			}
		}
		return r.fail(gvk, "list", unindexed(err, &lo))
	}

	return r.fail(gvk, "list", err)
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
	return &ClusterError{
		Cluster: r.key,
		GVK:     gvk,
		Op:      op,
		Err:     err,
	}
}

// cluster returns the cluster if a read may proceed, with an informer under way
// if the mode requires one.
func (r *reader) cluster(ctx context.Context, o *readOptions, id wants.Selection) (*cluster, error) {
	if r.cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := r.cc.find(r.key)
	if o.mode == AutoWatch {
		var err error
		if c, _, err = r.cc.acquire(r.key, id, true); err != nil {
			return nil, ErrClosed
		}
	}

	switch {
	case c == nil && !r.cc.live.Load():
		r.cc.used()
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

// WhyNot returns why a cluster is not connected.
func (c *cluster) WhyNot() error {
	if !c.cc.live.Load() && c.cc.ctx.Err() == nil {
		return ErrNotStarted
	}
	v := c.conn.View()
	base := ErrNotConnected
	if v.Phase == phase.Connecting || (v.Phase == phase.Pending && v.Err == nil) {
		base = ErrConnecting
	}
	if v.Err != nil {
		return fmt.Errorf("%w: %w", base, apistatus.AboutOther(v.Err))
	}
	return base
}

// usable reports whether the cache of a want may answer a read, and records its
// origin: the informer has listed in the history that is served, and the server
// has refused none of its requests since. The error is errLive where the API
// server has to be queried instead.
func (c *cluster) usable(o *readOptions, want *wants.Want) error {
	if err := c.admits(o, want); err != nil {
		return err
	}
	if err := want.Lease().Trust(c.grace(o)); err != nil {
		return instead(o, distrusted(err))
	}
	if o.written != nil && o.written.Behind(want) {
		return instead(o, errBehind)
	}
	if o.maxAge == 0 && o.atLeast == "" && o.origin == nil {
		return nil
	}
	s := want.Lease().Status()
	if o.maxAge > 0 && time.Since(s.LastSeen) > o.maxAge {
		return instead(o, fmt.Errorf("%w: last sign of life %s ago", ErrStale,
			time.Since(s.LastSeen).Round(time.Second)))
	}

	if o.atLeast != "" {
		order, err := resourceversion.CompareResourceVersion(s.ResourceVersion, o.atLeast)
		if err != nil {
			return fmt.Errorf("%w: resourceVersion %q: %w", ErrUnsupported, o.atLeast, err)
		}
		if order < 0 {
			return instead(o, fmt.Errorf("%w: at resourceVersion %s", ErrStale, s.ResourceVersion))
		}
	}

	if o.origin != nil {
		*o.origin = Origin{
			Cached:          true,
			Connected:       c.conn.View().Connected,
			Epoch:           historyOf(s),
			ResourceVersion: s.ResourceVersion,
			LastSeen:        s.LastSeen,
		}
	}

	return nil
}

// admits is usable without what the read demands, and without the informer's
// trust in its own state.
func (c *cluster) admits(o *readOptions, want *wants.Want) error {
	if err := c.conn.OtherCluster(); err != nil {
		return err
	}
	if o.mode != CacheOnly && want.Polled() {
		return errLive
	}
	if o.forApply {
		if err := c.lacksManagedFields(want); err != nil {
			return instead(o, err)
		}
	}
	if !c.listed(want.Lease()) {
		return instead(o, ErrNotSynced)
	}
	if mapped, shown := want.Scopes(); mapped != shown {
		c.wants.Kinds.RemapSoon()
	}
	return nil
}

// grace returns how long an informer that follows no watch answers a read: one
// that accepts a greater age accepts an interruption of that length.
func (c *cluster) grace(o *readOptions) time.Duration { return max(c.cc.options.StaleAfter, o.maxAge) }

// historyOf names the history that an informer shows. Inside the epoch of its
// cluster a resource can have several: it may go back alone.
func historyOf(s informerpool.Status) string {
	if s.History == 0 {
		return string(s.Epoch)
	}
	return fmt.Sprintf("%s.%d", s.Epoch, s.History)
}

// moved reports whether another history began since the origin was recorded.
// The objects read meanwhile may belong to it.
func (o *readOptions) moved(want *wants.Want) bool {
	return o.origin != nil && o.origin.Epoch != historyOf(want.Lease().Status())
}

// listed reports whether an informer has listed in the history that is served.
func (c *cluster) listed(lease *informerpool.Lease) bool {
	return lease.ListedIn(c.conn.View().Epoch)
}

// distrusted returns why an informer that has synced does not answer.
func distrusted(err error) error {
	if errors.Is(err, informerpool.ErrNotSynced) || errors.Is(err, informerpool.ErrReleased) {
		return ErrNotSynced // since the check before
	}
	return fmt.Errorf("%w: %w", ErrStale, err)
}

// getCached reads one object from the cache.
func (c *cluster) getCached(
	o *readOptions, gvk schema.GroupVersionKind, key client.ObjectKey, obj client.Object,
) error {
	if o.mode == LiveOnly {
		return errLive
	}
	object, err := c.lookUp(o, gvk, key)
	if err != nil {
		return err
	}
	return c.decode(object, obj, o.share)
}

// decode decodes an object for a caller that owns it, or that does not change
// it.
func (c *cluster) decode(o *informerpool.Object, dst runtime.Object, share bool) error {
	if share {
		return c.cc.pool.DecodeShared(o, dst)
	}
	return c.cc.pool.Decode(o, dst)
}

// lookUp finds one object in the cache.
func (c *cluster) lookUp(
	o *readOptions, gvk schema.GroupVersionKind, key client.ObjectKey,
) (*informerpool.Object, error) {
	var space [4]*wants.Want
	object, by, err := c.lookUpIn(o, c.wants.Index.Covering(space[:0], gvk, key), key, notWatched(o))
	if by == nil {
		object, by, err = c.lookUpIn(o, c.wants.Index.Partial(gvk, key.Namespace), key, err)
	}
	if err == nil {
		c.wants.Seen.Answered(by, object)
	}
	return object, err
}

// lookUpIn finds one object in the caches of wants. by is the first that
// answers, or nil if none does; then the error is why.
func (c *cluster) lookUpIn(
	o *readOptions, among []*wants.Want, key client.ObjectKey, why error,
) (object *informerpool.Object, by *wants.Want, err error) {
	for _, want := range among {
		object, answers, err := c.getFrom(o, want, key)
		switch {
		case answers:
			return object, want, err
		case err != nil:
			why = err
		}
	}
	return nil, nil, why
}

// getFrom finds one object in the cache of a want. If that does not answer, the
// error is why, unless it does not know whether the object exists.
func (c *cluster) getFrom(
	o *readOptions, want *wants.Want, key client.ObjectKey,
) (object *informerpool.Object, answers bool, err error) {
	check := c.usable
	if o.plain() {
		check = c.admits // Find checks the rest
	}
	if why := check(o, want); why != nil {
		return nil, false, why
	}
	if key.Namespace == "" && want.Namespaced() {
		return nil, true, errNoNamespace // as the API server's client says
	}
	namespace := want.In(key.Namespace)
	object, err = want.Lease().Find(namespace, key.Name, c.grace(o))
	if o.moved(want) || want.In(key.Namespace) != namespace { // another history or scope began meanwhile
		return c.getFrom(o, want, key)
	}
	if errors.Is(err, informerpool.ErrOutdated) {
		c.cc.metrics.outdated.Inc()
	}
	if err != nil {
		return nil, false, instead(o, distrusted(err))
	}
	switch {
	case object != nil:
		return object, true, nil
	case !want.Decides(key.Name):
		return nil, false, nil // the object may exist without being selected
	}

	return nil, true, apierrors.NewNotFound(want.Lease().Key().Resource.GroupResource(), key.Name)
}

// instead returns errLive instead of the reason why the cache does not answer,
// where the API server is to be queried.
func instead(o *readOptions, err error) error {
	if err == nil || o.mode == CacheOnly {
		return err
	}
	return errLive
}

// notWatched returns the error for a read that no informer covers.
func notWatched(o *readOptions) error {
	if o.mode == CacheOnly {
		return ErrNotWatched
	}
	return errLive
}

// liveRead queries the API server. If the origin is wanted, the server's
// identity is queried once more after the answer: the proof that admitted the
// read may be a minute old, and behind a proxy the cluster another one since.
func (c *cluster) liveRead(
	ctx context.Context, o *readOptions, read func(context.Context, client.Reader) error,
) error {
	live, err := c.live.Reader()
	if err != nil {
		return err
	}
	v, same := c.conn.View(), func() error { return nil }
	if o.origin != nil {
		ctx, same = c.conn.Witnessed(ctx)
	}
	err = read(ctx, live)
	if err != nil && !apistatus.SaysAbsent(err) {
		return err
	}
	if moved := same(); moved != nil {
		return moved
	}
	if c.conn.View().Epoch != v.Epoch {
		return connection.ErrMoved // the answer belongs to one history, and it is not known which
	}
	if o.origin != nil {
		*o.origin = Origin{Connected: true, Epoch: string(v.Epoch), LastSeen: time.Now()}
	}

	return err
}
