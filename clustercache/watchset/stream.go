// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// streamKey identifies what an entry delivers. An entry that begins to select
// other objects of the same kind and cluster continues its stream.
type streamKey struct {
	entry   string
	cluster client.ObjectKey
	gvk     schema.GroupVersionKind
}

// stream is what one consumer knows of the objects of one entry:
//
//	             apply           next            settle
//	feed ──────────────► pending ────► handler ─────────► known
//	                        ▲                               │
//	                        └────── sweep, end: left ───────┘
//
// The consumer's lock protects it.
type stream struct {
	streamKey

	deliverLeft bool
	feed        *feed              // nil once the entry was removed
	ctx         context.Context    //nolint:containedctx // of the handler; ends with the entry
	cancel      context.CancelFunc // ends ctx

	// known is the state of each object that the handler last accepted.
	known map[client.ObjectKey]*informerpool.Object
	// pending is what the handler has yet to accept.
	pending map[client.ObjectKey]*change
	// unconfirmed are the objects of an earlier feed that the present one has
	// not delivered; nil once it has delivered all that exist.
	unconfirmed map[client.ObjectKey]struct{}
}

// change is what the handler has yet to accept of one object.
type change struct {
	offered  *informerpool.Object // the state of the last call, which failed; nil if none did
	current  *informerpool.Object // nil if the object is gone
	final    *informerpool.Object // the last known state of one that is gone
	initial  bool
	left     bool // gone from the set, but perhaps not from its cluster
	attempts int
}

func newStream(key streamKey, deliverLeft bool) *stream {
	return &stream{
		streamKey:   key,
		deliverLeft: deliverLeft,
		known:       map[client.ObjectKey]*informerpool.Object{},
		pending:     map[client.ObjectKey]*change{},
	}
}

// begin makes a feed the one that the stream follows. Objects that the earlier
// one delivered stay, until sweep.
func (st *stream) begin(ctx context.Context, f *feed) {
	if st.feed == nil {
		st.ctx, st.cancel = context.WithCancel(ctx)
	}
	st.feed = f
	st.unconfirmed = map[client.ObjectKey]struct{}{}
	for _, o := range st.objects() {
		st.unconfirmed[o] = struct{}{}
	}
}

// end ends the stream: its entry was removed. It returns the objects whose
// leaving is to be delivered.
func (st *stream) end() []client.ObjectKey {
	st.feed = nil
	if st.cancel != nil {
		st.cancel()
	}
	if !st.deliverLeft {
		clear(st.known)
		clear(st.pending)
		return nil
	}
	left := st.objects()
	for _, o := range left {
		st.leave(o)
	}
	return left
}

// objects returns the keys of all objects that the handler has yet to forget.
func (st *stream) objects() []client.ObjectKey {
	keys := slices.Collect(maps.Keys(st.pending))
	for key := range st.known {
		if st.pending[key] == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// drained reports whether the stream has ended and delivered everything.
func (st *stream) drained() bool { return st.feed == nil && len(st.known)+len(st.pending) == 0 }

// apply adds an event, and reports whether there is something to deliver.
func (st *stream) apply(key client.ObjectKey, e informerpool.Event) bool {
	delete(st.unconfirmed, key)
	p, known := st.pending[key], st.known[key]
	switch {
	case e.Type == informerpool.Deleted && e.Evicted:
		st.leave(key)
	case e.Type == informerpool.Deleted:
		st.lose(key, e.Old)
	case p == nil && e.Type == informerpool.Added && known != nil && sameState(known, e.New):
		st.known[key] = e.New // the object of a new feed: the old one's need not be kept
		return false
	default:
		if p == nil {
			p = &change{initial: e.Initial}
			st.pending[key] = p
		}
		p.current, p.final = e.New, nil
		p.initial, p.left = p.initial && e.Initial, false
	}

	return st.pending[key] != nil
}

func sameState(a, b *informerpool.Object) bool {
	return a == b ||
		a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion() && a.SameContent(b)
}

// lose records that an object was deleted, in the given last state.
func (st *stream) lose(key client.ObjectKey, final *informerpool.Object) {
	p := st.pending[key]
	if p == nil {
		p = &change{}
		st.pending[key] = p
	}
	p.current, p.final, p.left = nil, final, false
}

// leave records that an object left the set. A deletion that is still to be
// delivered stays one.
func (st *stream) leave(key client.ObjectKey) {
	p := st.pending[key]
	switch {
	case p != nil && p.current == nil && !p.left:
	case !st.deliverLeft:
		delete(st.pending, key)
		delete(st.known, key)
	case p == nil:
		st.pending[key] = &change{final: st.known[key], left: true}
	case p.current != nil:
		p.final, p.current, p.left = p.current, nil, true
	}
}

// sweep decides about the objects that an earlier feed delivered, and that the
// present one lacks: those that it selects, in a state that the handler has or
// was to receive, were deleted, and the others have left the set. It returns
// them.
func (st *stream) sweep(t target) []client.ObjectKey {
	missing := slices.Collect(maps.Keys(st.unconfirmed))
	st.unconfirmed = nil
	for _, key := range missing {
		last, p := st.known[key], st.pending[key]
		selected := last != nil && t.selects(last)
		if p != nil && p.current != nil {
			last = p.current
			selected = selected || t.selects(last)
		}
		if selected && (p == nil || p.current != nil) {
			st.lose(key, last)
		} else {
			st.leave(key)
		}
	}
	return missing
}

// evict has the objects that no feed confirms any more leave: their cluster is
// gone. It returns them.
func (st *stream) evict() []client.ObjectKey {
	gone := slices.Collect(maps.Keys(st.unconfirmed))
	clear(st.unconfirmed)
	for _, key := range gone {
		st.leave(key)
	}
	return gone
}

// next returns the next event of an object, and the change that it is part of;
// nil if there is none.
func (st *stream) next(key client.ObjectKey) (Event, *change) {
	p := st.pending[key]
	if p == nil {
		return Event{}, nil
	}
	e := Event{
		Entry:   st.entry,
		Cluster: st.cluster,
		GVK:     st.gvk,
		Attempt: p.attempts,
	}
	accepted := st.known[key]
	received := accepted
	if received == nil {
		received = p.offered
	}
	switch {
	case p.current == nil && received == nil, // the handler has never seen it
		p.current != nil && accepted != nil && p.attempts == 0 && sameState(p.current, accepted): // undone
		delete(st.pending, key)
		return Event{}, nil
	case p.current == nil:
		e.Type, e.Old, e.Final, e.Left = informerpool.Deleted, received, p.final, p.left
	case received != nil && received.GetUID() != p.current.GetUID():
		e.Type, e.Old, e.Final = informerpool.Deleted, received, received
	case accepted == nil:
		e.Type, e.New, e.Initial = informerpool.Added, p.current, p.initial
	default:
		e.Type, e.Old, e.New = informerpool.Updated, accepted, p.current
	}
	if e.Type == informerpool.Deleted && (e.Final == nil || e.Final.GetUID() != e.Old.GetUID()) {
		e.Final = e.Old
	}

	return e, p
}

// settle records the result of a call with an event, and reports whether there
// is more to deliver of the object.
func (st *stream) settle(key client.ObjectKey, e Event, p *change, err error) bool {
	if st.pending[key] != p { // forgotten meanwhile
		return st.pending[key] != nil
	}
	if err != nil {
		p.attempts++
		if e.New != nil {
			p.offered = e.New
		}
		return true
	}
	p.attempts, p.offered = 0, nil
	if e.Type == informerpool.Deleted {
		delete(st.known, key)
	} else {
		st.known[key], p.initial = e.New, false
	}

	if p.current == e.New {
		delete(st.pending, key)
		return false
	}
	return true
}
