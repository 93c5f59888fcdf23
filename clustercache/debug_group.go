// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/markup"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// noOwner is what the page says of a cluster that no replica owns, and finds it
// by.
const noOwner = "no owner"

// debugElsewhere is a cluster that the resolver lists, and that this replica has
// nothing to do with.
type debugElsewhere struct {
	Cluster client.ObjectKey `json:"cluster"`
	*ownership.Holding
}

// findOwners asks which replica has what, if the clusters are shared, and
// Options.Sharding knows.
func (p *debugPage) findOwners(ctx context.Context, cc *ClusterCache, all []status.Cluster) {
	share, ok := cc.options.Sharding.(interface {
		Owners(ctx context.Context) *ownership.Group
	})
	if !ok {
		return
	}
	p.group = share.Owners(ctx)
	p.Group = p.group
	known := map[client.ObjectKey]bool{}
	for _, s := range all {
		known[s.Cluster] = true
	}
	for _, key := range cc.Listed() {
		if h := p.slot(cc.options.Sharding.Slot(key)); h != nil && !known[key] {
			p.Elsewhere = append(p.Elsewhere, debugElsewhere{Cluster: key, Holding: h})
		}
	}
}

// slot returns who has a slot, or nil if that is not known.
func (p *debugPage) slot(n int) *ownership.Holding {
	if p.group == nil || n >= len(p.group.Slots) {
		return nil
	}
	return &p.group.Slots[n]
}

// holding returns who has a cluster, or nil if that is not known.
func (p *debugPage) holding(s status.Cluster) *ownership.Holding {
	if s.Ownership == nil {
		return nil
	}
	return p.slot(s.Ownership.Slot)
}

// arrangeOwners counts the clusters of each replica, and those without an owner,
// and selects those that this replica has nothing to do with.
func (p *debugPage) arrangeOwners(all []status.Cluster) {
	p.owned, p.standby = map[string]int{}, map[string]int{}
	count := func(h *ownership.Holding) {
		if h == nil {
			return
		}
		p.owned[h.Owner]++
		for _, identity := range h.Standbys {
			p.standby[identity]++
		}
	}
	for _, s := range all {
		count(p.holding(s))
	}
	for _, x := range p.Elsewhere {
		count(x.Holding)
	}
	p.Elsewhere = slices.DeleteFunc(p.Elsewhere, func(x debugElsewhere) bool {
		return p.phase != "" || p.reason != "" || !p.matches(clusterName(x.Cluster), holdingText(x.Holding))
	})
	slices.SortStableFunc(p.Elsewhere, func(a, b debugElsewhere) int { return unowned(b) - unowned(a) })
}

func unowned(x debugElsewhere) int {
	if x.Owner == "" {
		return 1
	}
	return 0
}

// holdingText returns what can be searched for about who has a cluster.
func holdingText(h *ownership.Holding) string {
	switch {
	case h == nil:
		return ""
	case h.Owner == "":
		return noOwner + " " + h.Reason
	}
	return h.Owner + " " + h.Reason
}

// ownerText returns who owns a cluster, and since when.
func ownerText(h *ownership.Holding) string {
	text := h.Owner
	if text == "" {
		text = noOwner
	}
	if !h.Since.IsZero() {
		text += ", for " + ago(h.Since)
	}
	return text
}

// replicas writes the table of the replicas, and which clusters have no owner.
func (h *debugHTML) replicas() {
	h.Element(markup.H2, func() {
		h.Text("Replicas ")
		h.Leaf(debugTags.aside, strconv.Itoa(len(h.group.Replicas)))
	})
	if h.group.Trouble != "" {
		h.Leaf(debugTags.box, h.group.Trouble)
	}
	if n := h.owned[""]; n > 0 {
		h.Element(markup.P, func() {
			h.Leaf(markup.A.Link(markup.Query(url.Values{"q": {noOwner}})),
				countText(n, "cluster"), " without an owner")
		})
	}
	h.table(debugTags.stack, func() {
		h.Element(debugTags.headRow, func() {
			h.headings(markup.TH, "Replica", "State", "Joined", "Renewed", "Clusters")
		})
		for _, r := range h.group.Replicas {
			h.Element(markup.TR, func() { h.replicaRow(r) })
		}
	})
}

func (h *debugHTML) replicaRow(r ownership.Replica) {
	h.Element(debugTags.keyTD, func() {
		h.Leaf(markup.A.Link(markup.Query(url.Values{"q": {r.Identity}})), r.Identity)
	})
	if r.State == "" {
		h.Leaf(markup.TD.Class("state", string(status.PhaseReady)), "active")
	} else {
		h.Leaf(markup.TD.Class("state", "impaired"), r.State)
	}
	h.Leaf(markup.TD, sinceText(r.Since))
	h.Leaf(markup.TD, sinceText(r.Renewed))
	h.Leaf(debugTags.textTD, "owns ", strconv.Itoa(h.owned[r.Identity]), ", stands by for ",
		strconv.Itoa(h.standby[r.Identity]))
}

// elsewhere writes the clusters that this replica has nothing to do with.
func (h *debugHTML) elsewhere() {
	h.Element(markup.H2, func() {
		h.Text("Clusters of other replicas ")
		h.Leaf(debugTags.aside, strconv.Itoa(len(h.Elsewhere)))
	})
	h.table(debugTags.stack, func() {
		h.Element(debugTags.headRow, func() { h.headings(markup.TH, "Cluster", "Owner", "Standbys", "Why") })
		for _, x := range h.Elsewhere {
			h.Element(markup.TR, func() {
				h.Leaf(debugTags.keyTD, clusterName(x.Cluster))
				h.owner(markup.TD.Class("state"), x.Holding)
				h.Leaf(markup.TD, strings.Join(x.Standbys, ", "))
				h.Leaf(debugTags.textTD, x.Reason)
			})
		}
	})
}

// owner writes who owns a cluster in a cell.
func (h *debugHTML) owner(cell markup.Tag, x *ownership.Holding) {
	switch {
	case x == nil:
		h.Leaf(cell, absent)
	case x.Owner == "":
		h.Element(cell, func() { h.Leaf(debugTags.stale, ownerText(x)) })
	default:
		h.Leaf(cell, ownerText(x))
	}
}

// whyNotOwned writes why a cluster has no owner, or is about to get another one.
func (h *debugHTML) whyNotOwned(x *ownership.Holding) {
	if x == nil || x.Reason == "" {
		return
	}
	if x.Owner == "" {
		h.Leaf(debugTags.stale, noOwner)
		h.Text(": ")
	}
	h.Text(x.Reason, " ")
}

// ownerFacts writes who has a cluster, on the page of that.
func (h *debugHTML) ownerFacts(s status.Cluster) {
	x := h.holding(s)
	if x == nil {
		return
	}
	h.fact("Owner", ownerText(x), ", token ", strconv.FormatInt(x.Token, 10))
	if x.Reason != "" {
		h.fact("Why", x.Reason)
	}
	if len(x.Standbys) > 0 {
		h.fact("Standbys", strings.Join(x.Standbys, ", "))
	}
	if h.group.Trouble != "" {
		h.fact("Sharding", h.group.Trouble)
	}
}
