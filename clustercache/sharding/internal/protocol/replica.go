// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

// Format is the version of the protocol: of [SlotOf], and of what the Leases
// mean.
const Format = "2"

// Config configures a replica. All fields up to DrainFor are required, but for
// Program and Selector.
type Config struct {
	// Charter, Member and Slot are the names of the Leases. Member must differ
	// from that of any other process, at any time.
	Charter, Member string
	Slot            func(n int) string
	// Slots is the number of slots.
	Slots int
	// Program is what all members run. It may be empty, which is any.
	Program string
	// Selector is which clusters all members share. It may be empty.
	Selector string
	// Renew is the time between two renewals of the member Lease.
	Renew time.Duration
	// OwnFor is how long after sending a successful renewal the replica owns
	// its slots. A write may take as long.
	OwnFor time.Duration
	// DeadAfter is how long others have to see no renewal before they take the
	// replica for dead.
	DeadAfter time.Duration
	// Settle is how long a member has to be known before it gets slots, so that
	// replicas that start together share at once.
	Settle time.Duration
	// WarmFor bounds how long a slot whose owner stays waits for the caches of
	// its heir.
	WarmFor time.Duration
	// DrainFor bounds the drain of a slot.
	DrainFor time.Duration
	// Standbys is how many members stand by for each slot.
	Standbys int
	// Return is how long seats of a standby that has gone stay vacant, for the
	// next member that joins.
	Return time.Duration
	// Weight is the replica's share of the slots, in percent of an ordinary one.
	// 0 means DefaultWeight.
	Weight int
}

// Weights of members.
const (
	DefaultWeight = 100
	MaxWeight     = 1000
)

// Replica is the state of one replica. It is not safe for concurrent use. The
// times that its methods are given must never go backwards.
type Replica struct {
	cfg     Config
	viewed  bool // Replace was called
	charter held
	foreign Lease // a charter that contradicts cfg, if it has a name
	own     membership
	members []*member // by name; the replica's own is among them
	slots   []slot
	// top is the highest token seen of any slot. A slot's next one is higher: the
	// clusters of a slot have been in others if the group once had another number
	// of them.
	top int64

	published Plan   // by the eldest member, as it was seen last
	planned   inputs // of the replica's own plan
	followed  inputs // of owners and standby
	owners    []int  // by slot, indexes of followed.ids, or -1
	standby   []bool // by slot: the replica stands by for it
}

// held is a Lease as the view shows it, with the state of the writes to it.
type held struct {
	Lease
	exists bool

	busy  bool      // a write is under way
	basis string    // the revision on which the last write was based
	after time.Time // when to write again on the same basis
}

// overtaken reports whether a write to a slot is under way, and the view shows a
// later revision than the one it replaces: it was carried out, or cannot be any
// more. Its answer is not waited for.
func (h *held) overtaken() bool { return h.busy && h.Revision != h.basis }

// membership is what the replica knows of its own Lease beyond the view.
type membership struct {
	uid, id string // in the view; empty if there is none
	// quitting is the uid under which the deletion of the Lease was sent:
	// nothing is gained under it any more, since the deletion may have been
	// carried out. quit is set once that was answered.
	quitting string
	quit     bool
	// refused means that a renewal was refused, which proves nothing: a gateway
	// may have answered, or the server after the commit. looked is when a
	// refresh was last asked for because of that.
	refused bool
	looked  time.Time
	until   time.Time // when ownership ends
	// renewUntil is until when the Lease is renewed, unless the view is listed or
	// a renewal succeeds before: while others see renewals, they take nothing from
	// a replica that has found nothing out for as long as it owns by the last one.
	renewUntil time.Time
	due        time.Time // of the next renewal
	sent       []renewal // under uid, as long as they could renew anything
	number     int64     // of the last renewal
	shown      time.Time // when the newest renewal that the view shows was sent
	// gap: ownership ended by the clock, and was renewed before Next announced
	// that. It is announced now.
	gap bool
	// ended is when ownership ended by the clock last. Nothing is gained after
	// that until the view shows a renewal that was sent later: the hub may have
	// been set back meanwhile, and an earlier view tells nothing of it.
	ended time.Time
	// lapsed: ownership ended since the others were last judged. Their Leases
	// may not have been renewed because the hub was away.
	lapsed bool
	// unheard is when the hub first answered something about the Lease that the
	// view does not show yet, or when the renewal was sent that should keep up
	// ownership. It is zero if there is no such answer or renewal.
	unheard   time.Time
	refreshed bool // a refresh was asked for, and no list came since
	joining   held // the writes that create the Lease
	leaving   bool
	// drain is what the Lease is to say about draining, if it has to change: all
	// renewals after drainFrom carry it until the view shows one that does.
	drain     *bool
	drainFrom int64
	counts    []int
	loads     []int     // by slot, by the weights of clusters; 0 if they are not known
	plan      Plan      // of the replica itself, if it is the eldest member
	vacated   time.Time // when a member had last left the plan
}

// renewal is a renewal of the replica's Lease.
type renewal struct {
	number   int64
	sent     time.Time // or sooner
	answered bool
}

// member is a Lease of a member.
type member struct {
	held
	id       string    // its HolderID
	since    time.Time // the incarnation is known
	seen     time.Time // the revision is known
	renewals int       // seen since
}

// slot is a slot with its Lease.
type slot struct {
	held
	givenUp int64 // tokens up to this one are never used again
	// owned is the token by which the replica owns the slot, as announced by
	// [Gain] and [Lose]; 0 if it does not.
	owned    int64
	draining time.Time // when the drain began
	drained  bool
	heir     string    // the HolderID for which the replica will give it up
	promised time.Time // when it was first going to give it up to the heir

	load int // by the weights of clusters, as a member said last; 0 if none did

	warm   bool
	warms  int64 // counts Warm
	warmed bool
}

// New returns a replica that has not joined yet.
func New(cfg Config) *Replica {
	r := &Replica{
		cfg:   cfg,
		slots: make([]slot, cfg.Slots),
	}
	for n := range r.slots {
		r.slots[n].Name = cfg.Slot(n)
	}
	r.charter.Name = cfg.Charter
	return r
}

// ID returns the replica's [HolderID], or nothing while it is no member.
func (r *Replica) ID() string {
	if r.own.quit && r.own.uid == r.own.quitting {
		return ""
	}
	return r.own.id
}

// Until returns when the ownership of all slots ends, unless a renewal succeeds
// before. It is zero if the replica is no member.
func (r *Replica) Until() time.Time {
	if r.ID() == "" {
		return time.Time{}
	}
	return r.own.until
}

// StandsBy reports whether the replica does not own a slot, but may have to
// take it over.
func (r *Replica) StandsBy(n int) bool { return r.slots[n].warm && r.slots[n].owned == 0 }

// Mismatch returns a charter of the group that contradicts the Config, and
// reports whether there is one. Such a replica takes no part.
func (r *Replica) Mismatch() (charter Lease, mismatch bool) { return r.foreign, r.mismatch() }

func (r *Replica) mismatch() bool { return r.foreign.Name != "" }

// Left reports whether the replica has left the group, after [Replica.Leave].
func (r *Replica) Left() bool {
	if !r.own.leaving || !r.viewed {
		return r.own.leaving
	}
	joining := r.own.uid == "" && (r.own.joining.busy || !r.own.unheard.IsZero())
	return r.ID() == "" && !joining
}

// Leave makes the replica give up its slots, and then its membership. If its
// view is too old for that, a refresh is asked for once more: the list that was
// asked for before may hang.
func (r *Replica) Leave(now time.Time) {
	if !r.own.leaving {
		r.own.leaving, r.own.due, r.own.refreshed = true, now, false
	}
}

// SetDraining makes the replica give up its slots, and get no more, or ends
// that. It stays a member. The next renewal carries it.
func (r *Replica) SetDraining(draining bool) { r.own.drain, r.own.drainFrom = &draining, r.own.number }

// SetLoads sets the sums of the weights of the clusters of each slot, and 0
// where they are not known. Renewals carry those of slots that the replica
// owns or stands by for.
func (r *Replica) SetLoads(loads []int) { r.own.loads = loads }

// SetCounts sets how many clusters each slot has, for plans that the replica
// makes.
func (r *Replica) SetCounts(counts []int) { r.own.counts = counts }

// Drained reports that work on a slot has ended. The token is that of the
// [Drain].
func (r *Replica) Drained(n int, token int64) {
	if s := &r.slots[n]; s.owned == token && !s.draining.IsZero() {
		s.drained = true
	}
}

// Warmed reports that the caches of a slot's clusters are filled. The token is
// that of the [Warm]. The next renewal carries it.
func (r *Replica) Warmed(n int, token int64) {
	if s := &r.slots[n]; s.warm && s.warms == token {
		s.warmed = true
	}
}

// Expire ends the ownership of all slots until a renewal succeeds that is sent
// later. It is for callers that find their clock wrong.
func (r *Replica) Expire() { r.own.until, r.own.shown = time.Time{}, time.Time{} }
