// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Trust returns nil if the lease's reads may be taken for the server's state,
// and otherwise the reason why not. Reads are served in either case: whether
// the last known state is good enough is the caller's decision.
//
// An informer is not trusted
//   - before its first list, after the release, and after the pool was closed;
//   - once the server refused it for good: it is forbidden, the resource is not
//     served, or its credentials were refused twice. Only a list or watch that
//     the server accepts ends that. Another failure does not, whatever it is;
//   - once its objects are known to be of another history than the server's,
//     until they are replaced;
//   - while any object may be one that it refused (for single objects and
//     lists, check [Lease.Unknown] as well);
//   - when it has followed no live watch for longer than grace, whatever the
//     reason. Within grace it is most likely about to resume. A watch that the
//     server accepts and ends at once does not count, and one that ended by the
//     stall time-out was not followed since its last sign of life;
//   - when its server gave no sign of life for longer than both grace and the
//     stall time-out, although a watch is open.
//
// An informer that polls, because its resource cannot be watched or has no
// versions, is trusted between two successful polls.
func (l *Lease) Trust(grace time.Duration) error {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()

	if err := l.readableLocked(); err != nil {
		return err
	}
	if err := i.distrustLocked(grace); err != nil {
		return fmt.Errorf("%s: %w", l.Key(), err)
	}
	return nil
}

// Unknown returns why the cache cannot answer for an object, or nil if it can.
// With an empty name it does so for a list of the namespace, and with both
// empty for a list of all namespaces.
//
// A server may send objects that the informer refuses: objects larger than
// Options.MaxObjectBytes, without a uid or a resourceVersion though lists have
// one, with an invalid name, over budget, or refused by a transform. Such an object exists, or has
// changed, but the cache lacks it or holds an earlier state: reads of it, and
// lists that would include it, have to go to the server. The last accepted
// state stays in the cache, since a refused change does not prove a delete.
//
// Unknown concerns single objects and complements [Lease.Trust], which fails if
// any object may be unknown. The error satisfies errors.Is(err, ErrRefused).
func (l *Lease) Unknown(namespace, name string) error {
	at := l.at.rlock()
	i := at.informer
	defer i.mu.RUnlock()

	if at.selector.Namespace != "" {
		namespace = at.selector.Namespace
	}
	switch {
	case name == "" && i.mu.refused.In(namespace):
	case name != "" && i.mu.refused.Has(types.NamespacedName{Namespace: namespace, Name: name}):
	default:
		return nil
	}

	return refusedError(at.key, i.mu.refused.Last())
}

// distrustLocked returns why the store may differ from the server's state for
// longer than a resume takes, or nil.
func (i *informer) distrustLocked(grace time.Duration) error {
	if err := i.refutedLocked(); err != nil {
		return err
	}
	if proof := i.signs.proof.Load(); proof != 0 && i.mu.detached.IsZero() && // without a look at the wall clock
		i.pool.clock.Now()-proof <= int64(max(grace, i.pool.options.StallTimeout)) {
		return nil
	}
	switch {
	case !time.Now().After(i.endsLocked(grace)):
		return nil
	case i.mu.lastErr != nil:
		return i.mu.lastErr
	case !i.mu.detached.IsZero():
		return ErrDetached
	}

	return ErrStalled
}

// refutedLocked returns why the store is known to differ from the server's
// state, or cannot be brought up to date, whatever the time; or nil.
func (i *informer) refutedLocked() error {
	switch {
	case i.mu.doubt != nil:
		return i.mu.doubt
	case i.mu.refused.All() != nil:
		return refusedError(i.key, i.mu.refused.All())
	}
	return i.mu.verdict.stands()
}

// TrustEnds returns when [Lease.Trust] will fail if the server gives no further
// sign of life; a time that has passed if it fails for that reason already.
// Zero means that it fails for another reason. After a time that has passed, the
// sign of life that ends the failure is reported to [Options.OnChanged].
func (l *Lease) TrustEnds(grace time.Duration) time.Time {
	i := l.at.lock().informer
	defer i.mu.Unlock()

	if l.readableLocked() != nil || i.refutedLocked() != nil {
		return time.Time{}
	}
	before := i.signs.expired.Swap(true) // before the sign of life is loaded, so that a later one is noticed
	ends := i.endsLocked(grace)
	if time.Now().Before(ends) {
		i.signs.expired.Store(before)
	}
	return ends
}

// endsLocked returns when the informer has gone without a sign of life, or
// without a watch, for too long.
func (i *informer) endsLocked(grace time.Duration) time.Time {
	if d := i.mu.detached; !d.IsZero() {
		return d.Add(grace)
	}
	return i.provenLocked().Add(max(grace, i.pool.options.StallTimeout))
}

// relation returns the informer's relation to its server.
func (i *informer) relation() relation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return relation{i.mu.trust, i.mu.position, i.mu.synced}
}

// provenLocked returns when the informer last had a sign of life of the stream
// it follows. A server's responses while it is not followed, such as to the
// history question, or a stream that proved to be none, prove nothing about the
// cache.
func (i *informer) provenLocked() time.Time {
	if i.mu.synced && !i.mu.detached.IsZero() {
		return i.mu.lastSign
	}
	return i.pool.clock.At(i.signs.proof.Load())
}
