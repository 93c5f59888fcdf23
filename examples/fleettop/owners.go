// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// listTimeout bounds a list of Leases.
const listTimeout = 10 * time.Second

// group reads the Leases of the replicas of an operator that share clusters. It
// needs the right to list Leases in their namespace.
type group struct {
	name   string
	leases coordinationclient.LeaseInterface
}

func newGroup(hub *rest.Config, namespace, name string) (*group, error) {
	api, err := coordinationclient.NewForConfig(hub)
	if err != nil {
		return nil, err
	}
	return &group{name: name, leases: api.Leases(namespace)}, nil
}

func (g *group) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := g.leases.List(ctx, metav1.ListOptions{LabelSelector: "fleetcache.github.io/sharding=" + g.name})
	if err != nil {
		return nil, fmt.Errorf("list the leases of group %s: %w", g.name, err)
	}
	return list.Items, nil
}

// showOwners shows who has what in a hub of the user, or what a change would
// move.
func (s *settings) showOwners(ctx context.Context, out *story.Printer, d display) error {
	configs, err := s.contexts.Load()
	if err != nil {
		return err
	}
	g, err := newGroup(configs[s.contexts.First()], s.namespace, s.group)
	if err != nil {
		return err
	}
	if s.change.given() {
		return g.predict(ctx, &s.change, out)
	}
	if s.length > 0 {
		limited, cancel := context.WithTimeout(ctx, s.length)
		defer cancel()
		ctx = limited
	}
	g.show(ctx, d)
	return nil
}

// look returns who has what. If the hub does not answer, it is what last has.
func (g *group) look(ctx context.Context, last owners) owners {
	leases, err := g.list(ctx)
	next := owners{at: time.Now(), err: err, Group: last.Group}
	if err == nil {
		var seen *ownership.Group
		if seen, next.err = sharding.Owners(leases, next.at); seen != nil {
			next.Group = *seen
		}
	}
	return next
}

// show draws who has what until ctx ends.
func (g *group) show(ctx context.Context, d display) {
	tick := time.NewTicker(d.interval())
	defer tick.Stop()
	d.begin()
	defer d.end()
	var last owners
	for {
		if next := g.look(ctx, last); ctx.Err() == nil {
			last = next
			d.draw(last)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// owners is who has what at one moment. It is read-only.
type owners struct {
	ownership.Group

	at  time.Time
	err error // why it is not known; Group is what was known last
}

// lines implements drawing.
func (o owners) lines(width, height int, notes []string) []string {
	var out []string
	if o.err != nil {
		out = append(out, "the hub does not answer: "+printable(o.err.Error()), "")
	}
	if o.Trouble != "" {
		out = append(out, o.Trouble, "")
	}
	out = append(out, aligned(o.replicas())...)
	out = append(out, "")
	out = append(out, aligned(o.parts())...)
	if len(notes) > 0 {
		out = append(append(out, ""), notes...)
	}
	if height > 0 && len(out) > height {
		out = append(out[:height-1], fmt.Sprintf("... and %d more lines", len(out)-height+1))
	}
	for i := range out {
		out[i] = clip(out[i], width)
	}
	return out
}

// replicas returns a line for each replica.
func (o owners) replicas() [][]string {
	weights := map[string]int{}
	for _, s := range o.Slots {
		weights[s.Owner] += s.Weight
	}
	rows := [][]string{{"REPLICA", "STATE", "JOINED", "RENEWED", "SLOTS", "WEIGHT", "STANDBY"}}
	for _, r := range o.Replicas {
		rows = append(rows, []string{
			printable(r.Identity), cmp.Or(r.State, "active"), o.ago(r.Since), o.ago(r.Renewed),
			strconv.Itoa(r.Owned), strconv.Itoa(weights[r.Identity]), strconv.Itoa(r.StandsBy),
		})
	}
	return rows
}

// part is slots that have everything in common.
type part struct {
	owner, standbys, reason string

	slots    []int
	weight   int
	from, to time.Time // of their Since
}

// parts returns a line for slots that have everything in common: those without
// an owner first, then those that move.
func (o owners) parts() [][]string {
	var all []*part
	for _, s := range o.Slots {
		x := part{owner: s.Owner, standbys: strings.Join(s.Standbys, " "), reason: s.Reason}
		i := slices.IndexFunc(all, func(p *part) bool {
			return p.owner == x.owner && p.standbys == x.standbys && p.reason == x.reason
		})
		if i < 0 {
			i = len(all)
			x.from, x.to = s.Since, s.Since
			all = append(all, &x)
		}
		all[i].add(s)
	}
	slices.SortStableFunc(all, func(a, b *part) int {
		return cmp.Or(
			cmp.Compare(a.rank(), b.rank()),
			cmp.Compare(a.owner, b.owner),
			cmp.Compare(a.standbys, b.standbys),
		)
	})
	rows := [][]string{{"OWNER", "STANDBYS", "FOR", "SLOTS", "WEIGHT", "WHY", "NUMBERS"}}
	for _, p := range all {
		since := o.ago(p.to)
		if first := o.ago(p.from); first != since {
			since += "-" + first
		}
		rows = append(rows, []string{
			cmp.Or(printable(p.owner), "none"), cmp.Or(printable(p.standbys), "none"), since,
			strconv.Itoa(len(p.slots)), strconv.Itoa(p.weight),
			cmp.Or(printable(p.reason), "as planned"), ranges(p.slots),
		})
	}
	return rows
}

func (p *part) add(s ownership.Holding) {
	p.slots = append(p.slots, s.Slot)
	p.weight += s.Weight
	if s.Since.Before(p.from) {
		p.from = s.Since
	}
	if s.Since.After(p.to) {
		p.to = s.Since
	}
}

// rank is 0 for slots without an owner, and 1 for those that move.
func (p *part) rank() int {
	switch {
	case p.owner == "":
		return 0
	case p.reason != "":
		return 1
	}
	return 2
}

// ago returns how long ago something was, by the clock of who wrote it.
func (o owners) ago(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return age(max(o.at.Sub(t), 0))
}

// ranges returns ascending numbers in short form, such as 0-3,7.
func ranges(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		text := strconv.Itoa(numbers[i])
		if last > i {
			text += "-" + strconv.Itoa(numbers[last])
		}
		out, i = append(out, text), last+1
	}
	return strings.Join(out, ",")
}

// aligned returns rows as lines with columns of equal width.
func aligned(rows [][]string) []string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, len(gap), ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
