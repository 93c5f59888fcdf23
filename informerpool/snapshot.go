// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// restoredPause is how long a stream that continues a snapshot may be
	// silent, and maxCatchUp how long it may last, before the snapshot with the
	// changes so far is shown, if the stream has not come up to the server's
	// version until then.
	restoredPause = 250 * time.Millisecond
	maxCatchUp    = 10 * time.Second
	// maxRestores is how often a snapshot is tried, if what fails may pass,
	// before the informer lists instead.
	maxRestores = 3
)

var (
	errDamaged   = errors.New("snapshot is damaged")
	errOtherKind = errors.New("snapshot is of another kind")
)

// Snapshots keeps states of informers for the next process, which begins with
// them instead of a list. It is called from many goroutines, and must not block
// for longer than it takes to read.
type Snapshots interface {
	// Load returns the last state of a key that was kept, or nil if there is
	// none, or none of the history that the epoch identifies. It is called
	// after the source's Ready has returned the epoch.
	Load(ctx context.Context, key Key, epoch Epoch) *Snapshot
	// Drop ends the use of what is kept for a key, since it has turned out to
	// be wrong, or useless. It only takes note.
	Drop(key Key, why error)
	// DropCluster is Drop for all keys of a cluster.
	DropCluster(cluster types.NamespacedName, why error)
}

// Snapshot is the complete state of an informer at a resourceVersion.
type Snapshot struct {
	// Kind is the kind of the objects; it may be empty if there are none.
	Kind string
	// ResourceVersion is the version at which the server had this state.
	ResourceVersion string
	// Listed is when the informer's last complete list was made.
	Listed time.Time
	// Objects yields the JSON of each object as the informer stored it, after
	// transforms. It is valid until the next one. After an error the snapshot
	// is not used.
	Objects iter.Seq2[[]byte, error]
}

// Capture is the state of an informer at one moment.
type Capture struct {
	// Epoch is the epoch of the objects.
	Epoch Epoch
	// Kind is the kind of the objects; empty if there are none and the key has
	// no kind.
	Kind string
	// ResourceVersion is the version at which the server had this state.
	ResourceVersion string
	// Proven is when the server last gave a sign of life on the stream, and so
	// of this state being current.
	Proven time.Time
	// Listed is when the last complete list was made, be it in an earlier
	// process.
	Listed time.Time
	// Unchanged reports that the objects are those of the mark.
	Unchanged bool
	// Objects are the objects, in no order; nil if Unchanged.
	Objects []*Object
	// Mark identifies the state.
	Mark Mark
}

// Mark identifies a state of an informer. Marks are comparable.
type Mark struct {
	informer weak.Pointer[informer]
	changes  uint64
	rv       string
	epoch    Epoch
}

// Capture returns the state of the informer of a canonical key. It returns
// false if there is no such informer, or its objects are not known to be
// exactly those that the server had at one version: before the first list,
// while the state of an object is unknown, when a list broke midway, or on a
// server without versions. Objects are left out if they are those of the mark
// since. It does no I/O.
func (p *Pool) Capture(key Key, since Mark) (Capture, bool) {
	p.mu.Lock()
	i := p.mu.informers[key]
	p.mu.Unlock()

	if i == nil {
		return Capture{}, false
	}
	i.mu.RLock()
	defer i.mu.RUnlock()

	if !i.exactLocked() {
		return Capture{}, false
	}
	c := Capture{
		Epoch:           i.mu.epoch,
		Kind:            key.Kind,
		ResourceVersion: i.mu.rv,
		Proven:          i.provenLocked(),
		Listed:          i.mu.listed,
		Mark: Mark{
			informer: weak.Make(i),
			changes:  i.mu.store.Changes,
			rv:       i.mu.rv,
			epoch:    i.mu.epoch,
		},
	}
	c.Unchanged = c.Mark.informer == since.informer && c.Mark.changes == since.changes && c.Mark.epoch == since.epoch
	if !c.Unchanged {
		c.Objects = slices.AppendSeq(make([]*Object, 0, i.mu.store.Count), i.mu.store.All())
	}
	if len(c.Objects) > 0 {
		c.Kind = c.Objects[0].Kind().GVK().Kind
	}

	return c, true
}

// exactLocked reports whether the objects are those that the server had at
// mu.rv, as far as is known.
func (i *informer) exactLocked() bool {
	return i.mu.synced && !i.mu.unserved && !i.mu.vague && !i.mu.dubious && i.mu.partial == "" &&
		i.mu.doubt == nil && i.mu.attempt.finding == nil &&
		!i.mu.refused.In("") && ordering.Ordered(i.mu.rv)
}

// doubtState keeps the informer's state from being captured until the next
// complete list.
func (i *informer) doubtState() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.dubious = true
}

// restore continues the state that an earlier process has kept. It returns no
// stream if there is none, or it cannot be continued: without an error a list is
// due then, and with one it is worth trying again. Nothing of
// the state is shown before the server has proved
//
//   - its identity: Ready has returned the epoch;
//   - that its history reaches the version of the state;
//   - that it can continue from there: the watch brings what has changed since.
//
// What the watch brings at once is part of the first state that is shown, so
// that it is about as current as a list.
func (r *reflector) restore(ctx context.Context) (*stream, error) {
	if r.restores >= maxRestores || r.options.Snapshots == nil || r.informer.hasSynced() || !r.server.watchable() {
		return nil, nil
	}
	r.restores++
	key := r.informer.key
	var saved *Snapshot
	_ = r.informer.pool.calls.Apart("Snapshots", &key, func() error {
		saved = r.options.Snapshots.Load(ctx, key, r.server.epoch)
		return nil
	})
	if saved == nil {
		r.restores = maxRestores
		return nil, nil
	}

	s, err := r.continueFrom(ctx, saved)
	if err == nil {
		r.restores = maxRestores
		return s, nil
	}
	r.at.resume, r.at.reach = "", ""
	if ctx.Err() != nil || mayPass(err) && r.restores < maxRestores {
		return nil, err
	}
	r.restores = maxRestores
	r.options.Logger.Info("Kept state is not used", "informer", key.String(), "reason", err.Error())
	r.informer.dropSnapshot(err)

	return nil, nil
}

// mayPass reports whether an error proves nothing about a snapshot: the server
// is busy, or the connection broke.
func mayPass(err error) bool {
	for _, final := range []error{ErrHistory, ErrKind, ErrVersion, ErrRefused, ErrBudget, errDamaged, errOtherKind} {
		if errors.Is(err, final) {
			return false
		}
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || busy(status.Status())
}

// dropSnapshot ends the use of the state that was kept for the key.
func (i *informer) dropSnapshot(why error) {
	if snapshots := i.pool.options.Snapshots; snapshots != nil {
		_ = i.pool.calls.Apart("Snapshots", &i.key, func() error {
			snapshots.Drop(i.key, why)
			return nil
		})
	}
}

// dropSnapshots is dropSnapshot for all keys of a cluster.
func (p *Pool) dropSnapshots(cluster types.NamespacedName, why error) {
	if p.options.Snapshots != nil {
		_ = p.calls.Apart("Snapshots", cluster, func() error {
			p.options.Snapshots.DropCluster(cluster, why)
			return nil
		})
	}
}

// continueFrom makes a snapshot, with what has changed since, the informer's
// state.
func (r *reflector) continueFrom(ctx context.Context, saved *Snapshot) (s *stream, err error) {
	if !ordering.Ordered(saved.ResourceVersion) {
		return nil, fmt.Errorf("%w: its version is %s", errDamaged, wire.Excerpt(saved.ResourceVersion))
	}
	if err := r.kind.learn(ctx, &r.server); err != nil {
		return nil, err
	}
	if kind := r.kind.packed.GVK().Kind; saved.Kind != "" && saved.Kind != kind {
		return nil, fmt.Errorf("%w: %s instead of %s", errOtherKind, wire.Excerpt(saved.Kind), kind)
	}
	current, err := r.server.currentVersion(ctx, false)
	if err == nil && ordering.Behind(current, saved.ResourceVersion) {
		err = fmt.Errorf("%w (server is at %s, snapshot at %s)", ErrHistory, current, saved.ResourceVersion)
	}
	if err != nil {
		return nil, err
	}

	l := beginList(r)
	l.listed = saved.Listed
	defer func() { l.abort(err) }()
	if err := r.unpack(ctx, saved, l); err != nil {
		return nil, err
	}
	r.at.resume, r.at.reach = saved.ResourceVersion, saved.ResourceVersion
	opts := r.server.listOptions()
	opts.ResourceVersion = r.at.resume
	opts.AllowWatchBookmarks = true
	opts.TimeoutSeconds = r.server.watchSeconds()
	r.server.count(countWatches)
	if s, err = r.server.open(ctx, opts, r.options.StallTimeout); err != nil {
		return nil, err
	}
	if err = r.catchUp(s, l, current); err != nil {
		s.close()
		return nil, err
	}
	s.calm(!r.server.bookmarks)

	return s, nil
}

// unpack adds the objects of a snapshot to a list. One permit is held
// meanwhile, as for a list.
func (r *reflector) unpack(ctx context.Context, saved *Snapshot, l *listing) error {
	release, err := r.informer.pool.permits.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	l.stored = true // they were transformed before they were kept
	defer func() { l.stored = false }()

	return r.informer.pool.calls.Here("Snapshots", &r.informer.key, func() error {
		for object, err := range saved.Objects {
			if err != nil {
				return fmt.Errorf("%w: %w", errDamaged, err)
			}
			if err := l.apply(wire.Added, storedObject(object), wire.ListHeader{}); err != nil {
				return err
			}
			if l.rejected > 0 {
				return fmt.Errorf("%w: %w", errDamaged, l.refused.Last())
			}
		}
		return nil
	})
}

// storedObject is the JSON of one object of a snapshot.
type storedObject []byte

// Object implements scanner.
func (o storedObject) Object() []byte { return o }

// Scan implements scanner.
func (o storedObject) Scan() (wire.Item, error) { return wire.Scan(o) }

// catchUp applies to a list, which has begun with a snapshot, the changes since
// then, and makes the result the informer's state. That is complete once the
// stream has come up to the current version. A stream without a change there
// does not show that: then it is complete once the stream pauses.
func (r *reflector) catchUp(s *stream, l *listing, current string) error {
	began := time.Now()
	for !ordering.Reaches(r.at.resume, current) && time.Since(began) < maxCatchUp {
		paused, err := r.pauses(s, l)
		if paused {
			return err
		}
		if err == nil {
			err = r.catchUpNext(s, l)
		}
		if err != nil {
			return eofIsUnexpected(err)
		}
	}

	return r.finishRestored(l)
}

// finishRestored makes a list that has begun with a snapshot the informer's
// state.
func (r *reflector) finishRestored(l *listing) error {
	if err := l.finish(r.at.resume); err != nil {
		return err
	}
	r.server.count(countRestores)
	r.informer.pool.auditRestored(r.informer)

	return nil
}

// pauses waits for the next frame. If the stream pauses instead, pauses
// finishes the list meanwhile, and returns true, with the result, when a frame
// has arrived or the stream has ended.
//
// A read of a stream cannot be given up. The list is therefore finished by a
// timer, in place of the reflector, which is blocked in the read, and does
// nothing until the timer has been stopped or its function has returned.
func (r *reflector) pauses(s *stream, l *listing) (paused bool, err error) {
	finished, result := make(chan struct{}), errUnreturned
	timer := time.AfterFunc(restoredPause, func() {
		defer close(finished)
		l.unproven = true
		result = r.finishRestored(l)
	})
	err = s.wait()
	if timer.Stop() {
		return false, err
	}
	<-finished // the stream's next read fails like this one

	return true, result
}

// catchUpNext applies the next frame, which has begun to arrive.
func (r *reflector) catchUpNext(s *stream, l *listing) error {
	frame, err := s.next()
	if err != nil {
		return err
	}
	version := ""
	if frame.Type == wire.Bookmark {
		it, err := s.frames.Scan()
		if err == nil {
			err = r.bookmark(&it)
		}
		if err != nil {
			return err
		}
		version = it.ResourceVersion
	} else {
		it, err := s.frames.Scan()
		if err != nil {
			return err
		}
		version = it.ResourceVersion
		if err := r.at.checkOrder(version); err != nil {
			return err
		}
		if err := l.apply(frame.Type, s.frames, wire.ListHeader{}); err != nil {
			return err
		}
	}
	if version == "" {
		return nil
	}
	_, err = r.at.advance(version)

	return err
}

// auditRestored schedules an audit of an informer that began with a kept state.
// The proofs that it began with are those of a watch that resumes after a long
// outage, and so is what they leave open.
func (p *Pool) auditRestored(i *informer) {
	if p.options.AuditInterval <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed && p.mu.informers[i.key] == i {
		p.bringForwardLocked(i, time.Now().Add(auditSoon+rand.N(auditSpread)))
		p.wakeAuditsLocked()
	}
}
