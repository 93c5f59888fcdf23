// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// prove makes the list, which is that of the snapshot, the server's state as of
// now:
//
//	list of metadata ──► no difference: proven at the list's version
//	   └──► watch from the snapshot's version ──► it brought what the list showed: proven
//	           ├─► it passed the list's version without that: ErrHistory
//	           └─► it is late, or silent: errUnproven
//
// current is the version that the server was known to be at before.
func (k *restoration) prove(ctx context.Context, current string) error {
	r := k.reflector
	err := k.unpack(ctx, func() error {
		err := k.compare(ctx, r.server.pageSize(r.options))
		if apierrors.IsResourceExpired(err) { // its pages are forgotten faster than they are read
			err = k.compare(ctx, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := reachesKept(k.at, k.saved.ResourceVersion); err != nil {
		return err
	}
	if ordering.Behind(k.at, current) {
		return fmt.Errorf("%w: server was at %s, and lists at %s", errUnproven, current, k.at)
	}
	if err := k.catchUp(ctx); err != nil {
		return err
	}
	r.at.resume = ordering.Further(r.at.resume, k.at)

	return nil
}

// compare compares the snapshot with a list of the server's metadata.
func (k *restoration) compare(ctx context.Context, limit int64) (err error) {
	r := k.reflector
	k.list.asOf = r.informer.pool.clock.Now()
	kept := r.informer.mu.staged // only the reflector, whose goroutine this is, changes it
	k.claim = comparison.NewClaim(kept.Get)
	k.at, err = r.server.metadata(ctx, limit, r.options.StallTimeout, func(at scanner) error {
		it, err := at.Scan()
		if err != nil {
			return fmt.Errorf("%w: %w", errUnproven, err)
		}
		if r.informer.key.mayList(it) {
			k.claim.Compare(it)
		}
		if k.claim.Owed() > comparison.MaxOwed {
			return fmt.Errorf("%w: more than %d objects differ", errUnproven, comparison.MaxOwed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(k.at, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: list is at %s", errUnproven, wire.Excerpt(k.at))
	}
	k.claim.End(version, kept.All())

	return nil
}

// catchUp applies to the snapshot the changes since then, until they have
// brought what the server's list has shown. The informer follows another stream,
// which begins at the version of that: this one may have more changes from
// before.
func (k *restoration) catchUp(ctx context.Context) error {
	if k.claim.Proven() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxProof, errUnproven)
	defer cancel()
	s, err := k.reflector.openWatch(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	s.unproven = true
	for !k.claim.Proven() {
		if ordering.Reaches(k.reflector.at.resume, k.at) {
			return fmt.Errorf("%w (%d objects differ from the server's at %s)", ErrHistory, k.claim.Owed(), k.at)
		}
		if err := k.catchUpNext(s); err != nil {
			return eofIsUnexpected(err)
		}
	}

	return nil
}

// catchUpNext applies the next frame.
func (k *restoration) catchUpNext(s *stream) error {
	r, l := k.reflector, k.list
	frame, err := s.next()
	if err != nil {
		return err
	}
	it, err := s.frames.Scan()
	if err == nil && frame.Type == wire.Bookmark {
		err = r.kind.bookmark(&it)
	}
	if err != nil {
		return err
	}
	if r.at.behind(it.ResourceVersion) {
		return r.at.wentBack(it.ResourceVersion)
	}
	if frame.Type != wire.Bookmark {
		if err := l.apply(frame.Type, s.frames, wire.ListHeader{}); err != nil {
			return err
		}
		if l.rejected > 0 {
			return l.refusal() // the list decides what is refused
		}
		version, err := strconv.ParseUint(it.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: stream is at %s", errUnproven, wire.Excerpt(it.ResourceVersion))
		}
		name := types.NamespacedName{Namespace: it.Namespace, Name: it.Name}
		k.claim.Brought(name, version, it.ResourceVersion, frame.Type == wire.Deleted)
	}
	if it.ResourceVersion != "" {
		r.at.advance(it.ResourceVersion)
	}

	return nil
}
