// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// object turns an object's bytes into a stored object. It refuses an object
// that does not belong to the key, has no identity or is too large, and returns
// nil for it: a broken object must not stop the others. An error ends the
// stream.
func (r *reflector) object(frame string, at scanner, header wire.ListHeader) (*Object, error) {
	unversioned := r.unversionedAt(header)
	o, id, err := r.kind.read(at, header, unversioned)
	if err == nil && unversioned && !r.kind.inPage && o.GetResourceVersion() == "" {
		r.server.bare = true
		return nil, errUnversioned
	}
	bare := frame != wire.Deleted && r.suspectsBare(id, err)
	if isRefusal(err) || errors.Is(err, ErrKind) && r.listing == nil {
		if frame != wire.Deleted && r.listing == nil {
			name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
			again := r.informer.mu.refused.At(name, id.ResourceVersion)
			if err := r.at.placeRefused(id.ResourceVersion, again); err != nil {
				return nil, r.asWatchError(err)
			}
		}
		r.refuse(frame, id, err)
		if r.listing == nil && r.informer.mu.store.Get(id.Namespace, id.Name) == nil {
			r.at.opening.without()
		}
		if bare {
			return nil, errUnversioned
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.informer.key, err)
	}
	return o, nil
}

// unversionedAt reports whether an object without a version may be read now: in
// a list without one, in a stream that follows such a list, or at the beginning
// of a streamed list, which then cannot be one.
func (r *reflector) unversionedAt(header wire.ListHeader) bool {
	switch l := r.listing; {
	case l == nil:
		return r.at.opening.existing && r.at.opening.versionless()
	case r.kind.inPage:
		return ordering.Versionless(header.ResourceVersion)
	default:
		return l.listed.IsZero() && l.accepted+l.rejected == 0
	}
}

// bareAgain is how often an object without a version may cause a list, in a
// stream whose list has a version.
const bareAgain = 10 * time.Minute

// suspectsBare reports whether a list has to follow since a stream that has
// versions has shown an object without one, which is refused: the resource may
// have none any more.
func (r *reflector) suspectsBare(id wire.Identity, err error) bool {
	_, field := errors.AsType[*wire.FieldError](err)
	if !field || id.ResourceVersion != "" || r.listing != nil || r.at.distrust != nil ||
		time.Since(r.suspected) < bareAgain {
		return false
	}
	r.suspected, r.server.bare = time.Now(), true
	return true
}

// refuse records that an object was refused: its state is unknown from now on.
// A frame that deletes the object needs no more than its identity, and is
// applied.
func (r *reflector) refuse(frame string, id wire.Identity, why error) {
	r.informer.count(countRejected)
	name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
	if frame == wire.Deleted && id.Name != "" && !errors.Is(why, ErrKind) {
		if r.listing != nil {
			r.listing.refused.Forget(name, id.ResourceVersion)
			r.listing.drop(name, func(o *Object) bool { return ordering.Ends(id, o) })
		} else {
			r.informer.removeNamed(id)
		}
		return
	}

	first := false
	switch {
	case r.listing != nil:
		first = r.listing.refuse(name, id.ResourceVersion, why) && !r.informer.mu.refused.Has(name)
	case errors.Is(why, ErrKind):
		first = r.informer.mu.refused.All() == nil
		r.informer.unknown(func(unknown *refusals.Set) { unknown.AddAll(why) })
	default:
		r.informer.unknown(func(unknown *refusals.Set) { first = unknown.Add(name, id.ResourceVersion, why) })
	}

	if r.listing == nil && r.informer.mu.refused.All() != nil {
		// Only the reflector writes it, so the reflector reads it without a
		// lock.
		r.at.distrust = r.informer.mu.refused.All()
	}
	log := r.options.Logger.V(1)
	if first {
		log = r.log.loud("object refused: " + why.Error()) // each attempt may refuse it for the first time
	}
	log.Info("Object refused: its state is unknown",
		"informer", r.informer.key.String(), "object", wire.Excerpt(name.String()), "error", why.Error())
}
