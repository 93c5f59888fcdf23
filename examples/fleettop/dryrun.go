// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// whatIf is a change of a group.
type whatIf struct {
	replicas int // 0: as many as there are
	standbys int // negative: as many as there are
	weights  map[string]int
}

// given reports whether there is something to predict.
func (w *whatIf) given() bool { return w.replicas > 0 || w.standbys >= 0 || len(w.weights) > 0 }

// addWeight reads REPLICA=PERCENT.
func (w *whatIf) addWeight(text string) error {
	name, percent, ok := strings.Cut(text, "=")
	weight, err := strconv.Atoi(percent)
	if !ok || err != nil || name == "" {
		return errors.New("not REPLICA=PERCENT")
	}
	if w.weights == nil {
		w.weights = map[string]int{}
	}
	w.weights[name] = weight
	return nil
}

// change returns the change. As in a StatefulSet, replicas that join have the
// next numbers, and those with the highest ones leave.
func (w *whatIf) change(replicas []ownership.Replica) sharding.Change {
	out := sharding.Change{Weights: w.weights, Standbys: w.standbys}
	switch {
	case w.standbys < 0:
		out.Standbys = 0 // no change
	case w.standbys == 0:
		out.Standbys = -1 // none
	}
	var names []string
	for _, r := range replicas {
		if r.State != "leaving" && !slices.Contains(names, r.Identity) {
			names = append(names, r.Identity)
		}
	}
	if w.replicas == 0 || len(names) == 0 {
		return out
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(ordinal(a), ordinal(b)), strings.Compare(a, b))
	})
	last := names[len(names)-1]
	n := ordinal(last)
	stem, numbered := strings.CutSuffix(last, "-"+strconv.Itoa(n))
	if !numbered {
		stem, n = "new", 0
	}
	out.Leave = names[min(w.replicas, len(names)):]
	for i := range max(w.replicas-len(names), 0) {
		out.Join = append(out.Join, fmt.Sprintf("%s-%d", stem, n+1+i))
	}
	return out
}

// ordinal returns the number at the end of a name, as a StatefulSet gives it; -1
// if there is none.
func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	if err != nil {
		return -1
	}
	return n
}

// predict prints what a change of the group would move. It changes nothing.
func (g *group) predict(ctx context.Context, w *whatIf, out *story.Printer) error {
	leases, err := g.list(ctx)
	if err != nil {
		return err
	}
	return printForecast(leases, w, out)
}

func printForecast(leases []coordinationv1.Lease, w *whatIf, out *story.Printer) error {
	now, err := sharding.Owners(leases, time.Now())
	if err != nil {
		return err
	}
	forecast, err := sharding.Predict(leases, w.change(now.Replicas))
	if err != nil {
		return err
	}
	type way struct{ from, to string }
	moves, weights, warm := map[way][]int{}, map[way]int{}, map[way]int{}
	var ways []way
	weight, cold := 0, 0
	for _, m := range forecast.Moves {
		x := way{m.From, m.To}
		if moves[x] == nil {
			ways = append(ways, x)
		}
		moves[x] = append(moves[x], m.Slot)
		weights[x] += m.Weight
		weight += m.Weight
		if m.Warm {
			warm[x]++
		} else {
			cold++
		}
	}
	out.Say("%d of %d slots would move, with a weight of %d; the caches of %d have to be filled first",
		len(forecast.Moves), len(now.Slots), weight, cold)
	rows := [][]string{{"REPLICA", "OWNS", "HOLDS", "FILLS"}}
	for _, r := range forecast.Replicas {
		rows = append(rows, []string{
			printable(r.Identity), strconv.Itoa(r.Owned), strconv.Itoa(r.Held), strconv.Itoa(r.Fills),
		})
	}
	if len(ways) > 0 {
		rows = append(rows, nil, []string{"FROM", "TO", "SLOTS", "WEIGHT", "WARM", "NUMBERS"})
	}
	for _, x := range ways {
		rows = append(rows, []string{
			cmp.Or(printable(x.from), "none"), printable(x.to), strconv.Itoa(len(moves[x])), strconv.Itoa(weights[x]),
			fmt.Sprintf("%d/%d", warm[x], len(moves[x])), ranges(moves[x]),
		})
	}
	out.Table(rows)
	return nil
}
