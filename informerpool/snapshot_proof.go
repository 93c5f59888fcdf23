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

// prove makes a list, which is that of a snapshot, the server's state as of now:
//
//	list of metadata ──► no difference: proven at the list's version
//	   └──► watch from the snapshot's version ──► it brought what the list showed: proven
//	           ├─► it passed the list's version without that: ErrHistory
//	           └─► it is late, or silent: errUnproven
//
// current is the version that the server was known to be at before.
func (r *reflector) prove(ctx context.Context, saved *Snapshot, l *listing, current string) error {
	var claim *comparison.Claim
	at := ""
	err := r.unpack(ctx, saved, l, func() (err error) {
		l.asOf = r.informer.pool.clock.Now()
		claim, at, err = r.compare(ctx, r.server.pageSize(r.options))
		if apierrors.IsResourceExpired(err) { // its pages are forgotten faster than they are read
			l.asOf = r.informer.pool.clock.Now()
			claim, at, err = r.compare(ctx, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := reachesKept(at, saved.ResourceVersion); err != nil {
		return err
	}
	if ordering.Behind(at, current) {
		return fmt.Errorf("%w: server was at %s, and lists at %s", errUnproven, current, at)
	}
	if err := r.catchUp(ctx, l, claim, at); err != nil {
		return err
	}
	r.at.resume = ordering.Further(r.at.resume, at)

	return nil
}

// compare compares the snapshot with a list of the server's metadata, and
// returns the version of that.
func (r *reflector) compare(ctx context.Context, limit int64) (claim *comparison.Claim, at string, err error) {
	kept := r.informer.mu.staged // only the reflector, whose goroutine this is, changes it
	claim = comparison.NewClaim(kept.Get)
	at, err = r.server.metadata(ctx, limit, r.options.StallTimeout, func(at scanner) error {
		it, err := at.Scan()
		if err != nil {
			return fmt.Errorf("%w: %w", errUnproven, err)
		}
		if r.informer.mayList(it) {
			claim.Compare(it)
		}
		if claim.Owed() > comparison.MaxOwed {
			return fmt.Errorf("%w: more than %d objects differ", errUnproven, comparison.MaxOwed)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	version, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("%w: list is at %s", errUnproven, wire.Excerpt(at))
	}
	claim.End(version, kept.All())

	return claim, at, nil
}

// catchUp applies to a snapshot the changes since then, until they have brought
// what a list at a version has shown. The informer follows another stream,
// which begins at that version: this one may have more changes from before.
func (r *reflector) catchUp(ctx context.Context, l *listing, claim *comparison.Claim, at string) error {
	if claim.Proven() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxProof, errUnproven)
	defer cancel()
	s, err := r.openWatch(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	s.unproven = true
	for !claim.Proven() {
		if ordering.Reaches(r.at.resume, at) {
			return fmt.Errorf("%w (%d objects differ from the server's at %s)", ErrHistory, claim.Owed(), at)
		}
		if err := r.catchUpNext(s, l, claim); err != nil {
			return eofIsUnexpected(err)
		}
	}

	return nil
}

// catchUpNext applies the next frame.
func (r *reflector) catchUpNext(s *stream, l *listing, claim *comparison.Claim) error {
	frame, err := s.next()
	if err != nil {
		return err
	}
	it, err := s.frames.Scan()
	if err == nil && frame.Type == wire.Bookmark {
		err = r.bookmark(&it)
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
		claim.Brought(name, version, it.ResourceVersion, frame.Type == wire.Deleted)
	}
	if it.ResourceVersion != "" {
		r.at.advance(it.ResourceVersion)
	}

	return nil
}
