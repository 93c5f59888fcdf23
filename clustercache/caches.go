// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
)

// caches are the informers of one cluster, as far as they answer reads.
type caches struct {
	shared  *shared
	cluster client.ObjectKey
	conn    *connection.Connection
	wants   *wants.Set
}

var (
	// errLive indicates that the API server has to be queried.
	errLive        = errors.New("ask the API server")
	errNoNamespace = errors.New("the namespace of the object is empty, and the kind is in namespaces")
)

// get reads one object from the cache.
func (c *caches) get(o *readOptions, gvk schema.GroupVersionKind, key client.ObjectKey, obj client.Object) error {
	if o.mode == LiveOnly {
		return errLive
	}
	object, err := c.lookUp(o, gvk, key)
	if err != nil {
		return err
	}
	return c.shared.decodeInto(object, obj, o.share)
}

// lookUp finds one object in the cache.
func (c *caches) lookUp(
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
func (c *caches) lookUpIn(
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
func (c *caches) getFrom(
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
		c.shared.metrics.outdated.Inc()
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

var errBehind = fmt.Errorf("%w: the cache does not show an earlier write yet", ErrStale)

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

// usable reports whether the cache of a want may answer a read, and records its
// origin: the informer has listed in the history that is served, and the server
// has refused none of its requests since. The error is errLive where the API
// server has to be queried instead.
func (c *caches) usable(o *readOptions, want *wants.Want) error {
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
func (c *caches) admits(o *readOptions, want *wants.Want) error {
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

// lacksManagedFields returns an error if an apply configuration must not be
// extracted from the cached objects of a want.
func (c *caches) lacksManagedFields(want *wants.Want) error {
	informers := &c.shared.options.Informers
	m := want.Mapping()
	if informers.DropManagedFields || m != nil && informers.TransformOf(m.Resource.GroupResource()) != nil {
		return fmt.Errorf("%w: ForApply: %w", ErrUnsupported, errNoManagedFields)
	}
	return nil
}

var errNoManagedFields = errors.New("the cache leaves managedFields out")

// grace returns how long an informer that follows no watch answers a read: one
// that accepts a greater age accepts an interruption of that length.
func (c *caches) grace(o *readOptions) time.Duration {
	return max(c.shared.options.StaleAfter, o.maxAge)
}

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
func (c *caches) listed(lease *informerpool.Lease) bool {
	return lease.ListedIn(c.conn.View().Epoch)
}

// distrusted returns why an informer that has synced does not answer.
func distrusted(err error) error {
	if errors.Is(err, informerpool.ErrNotSynced) || errors.Is(err, informerpool.ErrReleased) {
		return ErrNotSynced // since the check before
	}
	return fmt.Errorf("%w: %w", ErrStale, err)
}

// catchUp waits, for as long as Options.ReadYourWrites allows, until the
// informer that is to answer a read shows what was written before.
func (c *caches) catchUp(ctx context.Context, o *readOptions, covering []*wants.Want) {
	if o.written.Unknown() || o.mode == LiveOnly {
		return
	}
	left := time.Until(o.written.Last().Add(c.shared.options.ReadYourWrites))
	if left <= 0 {
		return
	}
	covering = slices.DeleteFunc(covering, func(want *wants.Want) bool {
		return c.usable(&readOptions{mode: CacheOnly, maxAge: o.maxAge}, want) != nil
	})
	shows := func(want *wants.Want) bool { return !o.written.Behind(want) }
	if len(covering) == 0 || slices.ContainsFunc(covering, shows) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	_ = covering[0].Lease().WaitFor(ctx, func() bool { return shows(covering[0]) }) // the read checks it again
}

// filled reports whether everything that is watched has been listed, as far as
// the cluster can be reached, and serves and permits it.
func (c *caches) filled() bool {
	switch v := c.conn.View(); {
	case v.Phase == phase.Connecting, v.Phase == phase.Pending && v.Reason == "",
		v.Phase == phase.Gone && v.Reason == status.ReasonReleased:
		return false
	case !v.Connected:
		return true
	}

	for _, w := range c.wants.All() {
		lease, _, err := c.wants.Look(w)
		if lease != nil && !c.listed(lease) {
			err = lease.Status().LastError
		}
		if err == nil && (lease == nil || !c.listed(lease)) {
			return false
		}
	}
	return true
}
