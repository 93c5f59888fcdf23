// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
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
	// Definition is that of the Capture.
	Definition string
	// Dictionaries are those that the objects need.
	Dictionaries []Dictionary
	// Objects yields each object as the informer stored it, after transforms, in
	// the form of AppendStored. It is valid until the next one. After an error
	// the snapshot is not used.
	Objects iter.Seq2[[]byte, error]
}

// Dictionary is a dictionary of objects that an earlier process has stored.
type Dictionary = packed.StoredDictionary

// kept are the states of informers that Options.Snapshots keeps.
type kept struct {
	snapshots Snapshots // nil if nothing is kept
	calls     *calls.Caller
}

// load returns the state that was kept for a key, or nil.
func (k *kept) load(ctx context.Context, key Key, epoch Epoch) (saved *Snapshot) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", &key, func() { saved = k.snapshots.Load(ctx, key, epoch) })
	}
	return saved
}

// drop ends the use of the state that was kept for a key.
func (k *kept) drop(key Key, why error) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", &key, func() { k.snapshots.Drop(key, why) })
	}
}

// dropCluster is drop for all keys of a cluster.
func (k *kept) dropCluster(cluster types.NamespacedName, why error) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", cluster, func() { k.snapshots.DropCluster(cluster, why) })
	}
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
	// Definition identifies the CustomResourceDefinition of the objects, and its
	// schema, under which a server may show other content in the same version.
	// It is empty if it is not known, and for resources that can have none.
	Definition string
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
		Definition:      i.mu.defined.String(),
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
	current, err := r.server.currentVersion(ctx, false)
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
	release, err := i.pool.lists.Take(ctx)
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
