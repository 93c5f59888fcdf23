// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Change is what is to become of a group: see [Predict].
type Change struct {
	// Join are the identities of replicas that start, and Leave of those that
	// end.
	Join, Leave []string
	// Weights are those of replicas, in percent, where they change. 0 drains a
	// replica.
	Weights map[string]int
	// Clusters are all clusters with their weights, which are 1 without
	// Options.ClusterWeight. By default they are as the group has them.
	Clusters map[client.ObjectKey]int
	// Slots is another number of slots, for which the group has to be founded
	// anew. It needs Clusters. 0 means no change.
	Slots int
	// Standbys is another number of standbys. Negative means none, 0 no change.
	Standbys int
}

// Forecast is what a change moves.
type Forecast struct {
	// Moves are the slots that get another owner.
	Moves []Move
	// Replicas are what each replica has then, by identity.
	Replicas []Share
}

// Move is a slot that gets another owner.
type Move struct {
	Slot int
	// From and To are the identities of the owners. From is empty if there was
	// none.
	From, To string
	// Clusters are those that move, if Change.Clusters was given, and Weight the
	// sum of their weights.
	Clusters []client.ObjectKey
	Weight   int
	// Warm means that the new owner has held the slot before, as a standby, so
	// that it need not fill its caches.
	Warm bool
}

// Share is what a replica has after a change, by the weights of clusters.
type Share struct {
	Identity string
	// Owned is what the replica owns, Held what it owns or stands by for, and
	// Fills what it does not hold before the change.
	Owned, Held, Fills int
}

// Predict returns what a change of a group would move, once all has settled. It
// is a dry run: it changes nothing, and does no I/O. leases are all Leases of the
// group, those with the label fleetcache.github.io/sharding=NAME. The error is an
// [*OptionError] that names the field of Change which cannot be, or leases if
// these have no plan.
func Predict(leases []coordinationv1.Lease, change Change) (*Forecast, error) {
	p, err := newPrediction(leases, change)
	if err != nil {
		return nil, err
	}
	standbys := len(p.before.Standbys)
	if change.Standbys != 0 {
		standbys = max(change.Standbys, 0)
	}
	p.after = protocol.Predict(p.before, p.candidates, p.counts, standbys, p.slots)
	return p.forecast(), nil
}

type prediction struct {
	before, after protocol.Plan
	formerSlots   int
	slots         int
	counts        []int
	candidates    []protocol.Candidate
	identities    map[string]string // by HolderID
	clusters      map[client.ObjectKey]int
}

func newPrediction(leases []coordinationv1.Lease, change Change) (*prediction, error) {
	charter, members, _ := sorted(leases)
	p := &prediction{
		formerSlots: charter.Slots,
		slots:       cmp.Or(change.Slots, charter.Slots),
		identities:  map[string]string{},
		clusters:    change.Clusters,
	}
	p.before = planOf(members, p.formerSlots)
	if len(p.before.Members) == 0 {
		return nil, &OptionError{Field: "leases", Err: errors.New("no Lease of the group has a plan")}
	}
	if p.slots < 1 || p.slots > maxSlots {
		err := fmt.Errorf("%d is not between 1 and %d", p.slots, maxSlots)
		return nil, &OptionError{Field: "Change.Slots", Err: err}
	}
	if p.slots != p.formerSlots && len(p.clusters) == 0 {
		return nil, &OptionError{Field: "Change.Slots", Err: errors.New("needs Change.Clusters, which get other slots")}
	}
	if err := p.choose(members, change); err != nil {
		return nil, err
	}
	p.counts = p.before.Counts
	if p.clusters != nil {
		p.counts = make([]int, p.slots)
		for c, weight := range p.clusters {
			p.counts[protocol.SlotOf(c.String(), p.slots)] += weight
		}
	}
	return p, nil
}

// planOf returns the plan of the eldest member that has one, which members
// follow. It sorts the members.
func planOf(members []protocol.Lease, slots int) (plan protocol.Plan) {
	slices.SortFunc(members, func(a, b protocol.Lease) int { // the eldest, which plans, is the last
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.Name, a.Name))
	})
	for _, m := range members {
		if m.Plan.Fits(slots) {
			plan = m.Plan
		}
	}
	return plan
}

// choose determines the replicas after the change.
func (p *prediction) choose(members []protocol.Lease, change Change) error {
	weights, present := map[string]int{}, map[string]bool{}
	for identity, weight := range change.Weights {
		if weight < 0 || weight > protocol.MaxWeight {
			return &OptionError{
				Field: "Change.Weights",
				Err:   fmt.Errorf("%d of %s is not between 0 and %d", weight, identity, protocol.MaxWeight),
			}
		}
		weights[identity] = weight
	}
	add := func(c protocol.Candidate) {
		if weight, changes := weights[c.Identity]; changes {
			c.Weight = weight
		}
		p.identities[c.ID] = c.Identity
		p.candidates = append(p.candidates, c)
	}
	for _, m := range members {
		c := m.Candidate()
		p.identities[c.ID] = c.Identity
		present[c.Identity] = true
		if !m.Leaving && !slices.Contains(change.Leave, c.Identity) {
			add(c)
		}
	}
	for _, identity := range change.Join {
		if present[identity] {
			return &OptionError{Field: "Change.Join", Err: fmt.Errorf("%s is there already", identity)}
		}
		add(protocol.Candidate{ID: identity, Identity: identity, Weight: protocol.DefaultWeight})
	}
	for _, identity := range change.Leave {
		if !present[identity] {
			return &OptionError{Field: "Change.Leave", Err: fmt.Errorf("there is no replica %s", identity)}
		}
	}
	for identity := range weights {
		known := func(c protocol.Candidate) bool { return c.Identity == identity }
		if !slices.ContainsFunc(p.candidates, known) {
			return &OptionError{Field: "Change.Weights", Err: fmt.Errorf("there is no replica %s", identity)}
		}
	}
	if len(p.candidates) == 0 {
		return &OptionError{Field: "Change.Leave", Err: errors.New("no replica is left")}
	}
	slices.SortFunc(p.candidates, func(a, b protocol.Candidate) int { return strings.Compare(a.Identity, b.Identity) })
	return nil
}

// part is clusters that have one slot before and one after the change.
type part struct {
	from, to int
	clusters []client.ObjectKey
	weight   int
}

func (p *prediction) parts() []part {
	var out []part
	if p.slots == p.formerSlots {
		for n := range p.slots {
			x := part{from: n, to: n}
			if n < len(p.counts) {
				x.weight = p.counts[n]
			}
			out = append(out, x)
		}
	}
	for c, weight := range p.clusters {
		from, to := protocol.SlotOf(c.String(), p.formerSlots), protocol.SlotOf(c.String(), p.slots)
		i := slices.IndexFunc(out, func(x part) bool { return x.from == from && x.to == to })
		if i < 0 {
			i = len(out)
			out = append(out, part{from: from, to: to})
		}
		out[i].clusters = append(out[i].clusters, c)
		if p.slots != p.formerSlots {
			out[i].weight += weight
		}
	}
	for _, x := range out {
		slices.SortFunc(x.clusters, func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
	}
	slices.SortFunc(out, func(a, b part) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) })
	return out
}

func (p *prediction) forecast() *Forecast {
	out := &Forecast{}
	shares := map[string]*Share{}
	for _, c := range p.candidates {
		shares[c.ID] = &Share{Identity: c.Identity}
	}
	for _, x := range p.parts() {
		from, to := p.before.Owner(x.from), p.after.Owner(x.to)
		for id, share := range shares {
			if p.after.Holds(x.to, id) {
				share.Held += x.weight
				if !p.before.Holds(x.from, id) {
					share.Fills += x.weight
				}
			}
		}
		shares[to].Owned += x.weight
		if from != to {
			out.Moves = append(out.Moves, Move{
				Slot:     x.to,
				From:     p.identities[from],
				To:       p.identities[to],
				Clusters: x.clusters,
				Weight:   x.weight,
				Warm:     p.before.Holds(x.from, to),
			})
		}
	}
	for _, c := range p.candidates {
		out.Replicas = append(out.Replicas, *shares[c.ID])
	}
	return out
}
