// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// maxProof is how long the stream that continues a snapshot may take to
	// bring what the server's list shows. It is short: a list follows, and
	// until then the informer shows nothing.
	maxProof = 10 * time.Second
	// maxRestores is how often a snapshot is tried, if what fails may pass,
	// before the informer lists instead.
	maxRestores = 3
)

var (
	errDamaged   = errors.New("snapshot is damaged")
	errOtherKind = errors.New("snapshot is of another kind")
	errUnproven  = errors.New("snapshot is not proven to be current")
	errRedefined = errors.New("snapshot is of another CustomResourceDefinition, or of another schema of it")
)

// restore continues the state that an earlier process has kept. It returns no
// stream if there is none, or it cannot be continued: without an error a list is
// due then, and with one it is worth trying again. Nothing of the state is shown
// before the server has proved
//
//   - its identity: Ready has returned the epoch;
//   - that its history reaches the version of the state;
//   - that the resource has the definition that it had;
//   - that the state, with what a watch from there has brought, is the server's
//     of now: the server is still at the version of the state, or a list of its
//     metadata shows the same objects in the same versions.
//
// Time proves nothing: a stream without changes may be late. The state counts as
// one that the server had when it was asked.
func (r *reflector) restore(ctx context.Context) (*stream, error) {
	if r.restores >= maxRestores || r.informer.relation().synced || !r.server.watchable() {
		return nil, nil
	}
	r.restores++
	key, kept := r.informer.key, &r.informer.pool.kept
	saved := kept.load(ctx, key, r.server.epoch)
	if saved == nil {
		r.restores = maxRestores
		return nil, nil
	}

	var s *stream
	continues := false
	err := r.server.ask(ctx, func() (err error) {
		if err = (&restoration{reflector: r, saved: saved}).run(ctx); err == nil {
			continues, r.restores = true, maxRestores
			s, err = r.watch(ctx)
		}
		return err
	})
	if continues {
		return s, err
	}
	r.at.resume, r.at.reach = "", ""
	if ctx.Err() != nil || mayPass(err) && r.restores < maxRestores {
		return nil, err
	}
	r.restores = maxRestores
	r.options.Logger.Info("Kept state is not used", "informer", key.String(), "reason", err.Error())
	kept.drop(key, err)

	return nil, nil
}

// mayPass reports whether an error proves nothing about a snapshot: the server
// is busy, or the connection broke.
func mayPass(err error) bool {
	for _, final := range []error{
		ErrHistory, ErrKind, ErrVersion, ErrRefused, ErrBudget, errDamaged, errOtherKind, errUnproven,
		errRedefined,
	} {
		if errors.Is(err, final) {
			return false
		}
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || busy(status.Status())
}

// restoration makes a snapshot, with what has changed since, the state of an
// informer. The snapshot takes the place of a list.
type restoration struct {
	reflector *reflector
	saved     *Snapshot
	list      *listing
	claim     *comparison.Claim // what the server's list of now shows differently
	at        string            // the version of that list
}

func (k *restoration) run(ctx context.Context) (err error) {
	r, saved := k.reflector, k.saved
	if !ordering.Ordered(saved.ResourceVersion) {
		return fmt.Errorf("%w: its version is %s", errDamaged, wire.Excerpt(saved.ResourceVersion))
	}
	if err := r.kind.learn(ctx, &r.server); err != nil {
		return err
	}
	if kind := r.kind.packed.GVK().Kind; saved.Kind != "" && saved.Kind != kind {
		return fmt.Errorf("%w: %s instead of %s", errOtherKind, wire.Excerpt(saved.Kind), kind)
	}

	defined := r.server.definitionNow(ctx)
	if defined.String() != saved.Definition {
		return errRedefined
	}

	k.list = beginList(r)
	k.list.defined = defined
	k.list.listed, k.list.asOf = saved.Listed, r.informer.pool.clock.Now()
	defer func() { k.list.abort(err) }()
	current, _, err := r.server.currentVersion(ctx, false)
	if err == nil {
		err = reachesKept(current, saved.ResourceVersion)
	}
	if err != nil {
		return err
	}
	r.at.resume, r.at.reach = saved.ResourceVersion, saved.ResourceVersion
	still := current == saved.ResourceVersion
	if still {
		err = k.unpack(ctx, func() error { return nil })
	} else {
		err = k.prove(ctx, current)
	}
	if err == nil {
		err = k.list.finish(r.at.resume)
	}
	if err != nil {
		return err
	}
	if still && r.options.AuditInterval > 0 { // another history may have got to the same version
		r.informer.pool.audits.by(r.informer, soon())
	}

	return nil
}

// reachesKept returns an error if the server, which is at a version, has not
// the history of a snapshot, or does not say so.
func reachesKept(current, kept string) error {
	switch {
	case !ordering.Ordered(current):
		return fmt.Errorf("%w: server is at %s", errUnproven, wire.Excerpt(current))
	case ordering.Behind(current, kept):
		return fmt.Errorf("%w (server is at %s, snapshot at %s)", ErrHistory, current, kept)
	}
	return nil
}

// unpack adds the objects of the snapshot to the list, and then calls compare.
// One permit is held meanwhile, as for a list. The objects are neither decoded
// nor packed again.
func (k *restoration) unpack(ctx context.Context, compare func() error) error {
	i := k.reflector.informer
	release, err := i.pool.permit(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = i.pool.calls.Here("Snapshots", &i.key, func() error {
		shelf, err := k.reflector.kind.packed.Shelf(k.saved.Dictionaries)
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		for stored, err := range k.saved.Objects {
			var o *Object
			if err == nil {
				o, err = shelf.Object(stored)
			}
			if err == nil && i.key.Namespace != "" && o.GetNamespace() != i.key.Namespace {
				err = errors.New("an object of another namespace")
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errDamaged, err)
			}
			if err := k.list.admit(o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return compare()
}

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
