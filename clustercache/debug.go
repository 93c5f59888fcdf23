// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/markup"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// minRefresh and maxRefresh bound the seconds between two loads of a page.
const minRefresh, maxRefresh = 2, 3600

// DebugHandler returns a handler that serves a page about the clusters: which
// are not connected and why, what is watched in each, the state of its
// informers and, with Options.Sharding, which replica owns it. Pass it to the
// manager's AddMetricsServerExtraHandler:
//
//	err := mgr.AddMetricsServerExtraHandler("/debug/clusters", cc.DebugHandler())
//
// docs/runbook.md lists the parameters, such as ?format=json. The page shows no
// credentials, but names of clusters and kinds, and addresses of API servers:
// serve it only to those who may know them. The handler changes nothing.
func (cc *ClusterCache) DebugHandler() http.Handler { return debugHandler{cc} }

// debugHandler serves the page.
type debugHandler struct{ cc *ClusterCache }

// ServeHTTP implements http.Handler.
func (d debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	page := d.page(r.Context(), newDebugQuery(query))
	if name := query.Get("cluster"); name != "" && !page.focus(d.cc, name) {
		http.Error(w, "this cluster is not known", http.StatusNotFound)
		return
	}
	if query.Get("format") != "json" {
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page.html())
		return
	}
	// The body is encoded before it is written, so that an error leaves no half
	// of it.
	body, err := json.MarshalIndent(page, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// page collects the state of every cluster, and arranges those that the query
// selects.
func (d debugHandler) page(ctx context.Context, query debugQuery) *debugPage {
	all := d.cc.Statuses()
	p := &debugPage{
		Time:       time.Now(),
		Name:       d.cc.options.Name,
		Clusters:   []status.Cluster{},
		Reasons:    map[string]string{},
		debugQuery: query,
		sum:        sumUp(all),
		count:      len(all),
		shared:     d.cc.tenure != nil,
	}
	p.findOwners(ctx, d.cc, all)
	p.arrange(all)

	return p
}

// debugPage is the content of the page.
type debugPage struct {
	Time     time.Time        `json:"time"`
	Name     string           `json:"cache"`
	Clusters []status.Cluster `json:"clusters"` // the worst first
	// Timeline has the last changes of the requested cluster's phase, the
	// latest first. Watches are its watches, and Users lists the owners that
	// declared them.
	Timeline []debugChange  `json:"timeline,omitempty"`
	Watches  []status.Watch `json:"watches,omitempty"`
	Users    []Use          `json:"users,omitempty"`
	// Reasons explains each reason that a cluster shows.
	Reasons map[string]string `json:"reasons,omitempty"`
	// Group is which replica has what, if the clusters are shared; on the page
	// of a cluster, only its slot.
	Group *ownership.Group `json:"group,omitempty"`
	// Elsewhere are selected clusters with which this replica has nothing to do.
	Elsewhere []debugElsewhere `json:"elsewhere,omitempty"`

	debugQuery

	focused string // the requested cluster
	phases  []debugCount
	causes  []debugCount   // by reason
	groups  []debugGroup   // of Clusters
	sum     status.Cluster // of all clusters
	count   int
	shared  bool // by Options.Sharding

	// group has all slots, if they are known. owned and standby are clusters by
	// the replicas that have them.
	group          *ownership.Group
	owned, standby map[string]int
}

// debugQuery is what a request selects.
type debugQuery struct {
	phase   string // empty: any
	reason  string // empty: any
	search  string // words that have to occur
	grouped bool   // by reason
	refresh int    // seconds between two loads of the page; 0: never

	values url.Values
}

// debugChange is a change of phase.
type debugChange struct {
	Time   time.Time    `json:"time"`
	Phase  status.Phase `json:"phase"`
	Reason string       `json:"reason,omitempty"`
}

// debugCount is the number of clusters with one phase or reason.
type debugCount struct {
	name  string
	count int
}

// debugGroup is a table of the page.
type debugGroup struct {
	heading  string // the reason, if clusters are grouped
	clusters []status.Cluster
}

// debugField is a hidden field of the search form.
type debugField struct{ name, value string }

func newDebugQuery(values url.Values) debugQuery {
	q := debugQuery{
		phase:   values.Get("phase"),
		reason:  values.Get("reason"),
		search:  strings.TrimSpace(values.Get("q")),
		grouped: values.Get("group") == "reason",
		values:  values,
	}
	if seconds, err := strconv.Atoi(values.Get("refresh")); err == nil && seconds > 0 {
		q.refresh = min(max(seconds, minRefresh), maxRefresh)
	}
	return q
}

// filtered reports whether clusters may be left out.
func (q debugQuery) filtered() bool { return q.phase != "" || q.reason != "" || q.search != "" }

// link returns the address of the same page with another value of a parameter;
// an empty value takes it away.
func (q debugQuery) link(name, value string) markup.Address {
	values := url.Values{}
	for _, field := range append(q.fields("cluster", "q"), debugField{name: name, value: value}) {
		values.Set(field.name, field.value)
		if field.value == "" {
			values.Del(field.name)
		}
	}
	return markup.Query(values)
}

// fields returns the parameters that select and arrange clusters, and the given
// ones, as far as they are set.
func (q debugQuery) fields(also ...string) []debugField {
	var out []debugField
	for _, name := range append([]string{"phase", "reason", "group", "refresh"}, also...) {
		if value := q.values.Get(name); value != "" {
			out = append(out, debugField{name: name, value: value})
		}
	}
	return out
}

// selects reports whether a cluster is on the page, by its status and by who has
// it.
func (q debugQuery) selects(s status.Cluster, h *ownership.Holding) bool {
	if q.phase != "" && q.phase != string(s.Phase) || q.reason != "" && q.reason != s.Reason {
		return false
	}
	return q.matches(
		clusterName(s.Cluster),
		string(s.Phase),
		s.Reason,
		text(s.LastError),
		s.Endpoint,
		s.ServerVersion,
		holdingText(h),
	)
}

// matches reports whether all words of the search occur in texts.
func (q debugQuery) matches(texts ...string) bool {
	text := strings.ToLower(strings.Join(texts, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.search)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// arrange counts the phases and reasons of all clusters, and forms the tables
// of those that are selected.
func (p *debugPage) arrange(all []status.Cluster) {
	p.arrangeOwners(all)
	phases, causes := map[string]int{}, map[string]int{}
	for _, s := range all {
		phases[string(s.Phase)]++
		causes[s.Reason]++
		if s.Reason != "" {
			p.Reasons[s.Reason] = status.Explain(s.Reason)
		}
		if p.selects(s, p.holding(s)) {
			p.Clusters = append(p.Clusters, s)
		}
	}
	for _, phase := range status.Phases() {
		if n := phases[string(phase)]; n > 0 {
			p.phases = append(p.phases, debugCount{name: string(phase), count: n})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		p.causes = append(p.causes, debugCount{name: reason, count: causes[reason]})
	}
	slices.SortStableFunc(p.causes, func(a, b debugCount) int { return b.count - a.count })
	slices.SortStableFunc(p.Clusters, func(a, b status.Cluster) int { return p.trouble(b) - p.trouble(a) })

	switch {
	case len(p.Clusters) == 0:
	case p.grouped:
		p.groupByReason()
	default:
		p.groups = []debugGroup{{clusters: p.Clusters}}
	}
}

// groupByReason forms a table for each reason, the most frequent first, and one for
// clusters without a reason.
func (p *debugPage) groupByReason() {
	for _, cause := range append(slices.Clone(p.causes), debugCount{}) {
		g := debugGroup{heading: cause.name}
		for _, s := range p.Clusters {
			if s.Reason == cause.name {
				g.clusters = append(g.clusters, s)
			}
		}
		if cause.name == "" {
			g.heading = "Without a reason"
		}
		if len(g.clusters) > 0 {
			p.groups = append(p.groups, g)
		}
	}
}

// focus narrows the page to one cluster, given its name as in the page's links
// or as plain text. It returns false if there is no such cluster.
func (p *debugPage) focus(cc *ClusterCache, name string) bool {
	i := slices.IndexFunc(p.Clusters, func(s status.Cluster) bool { return clusterName(s.Cluster) == name })
	if i < 0 {
		i = p.spelled(name)
	}
	if i < 0 {
		return false
	}
	p.Clusters = p.Clusters[i : i+1]
	cluster := p.Clusters[0].Cluster
	p.focused = clusterName(cluster)
	p.Watches, _ = cc.Cluster(cluster).WatchStatuses() // none if the cluster was forgotten meanwhile
	p.Timeline = timeline(cc.clusters.find(cluster))
	p.Elsewhere = nil
	if h := p.holding(p.Clusters[0]); h != nil {
		one := *p.group
		one.Slots = []ownership.Holding{*h}
		p.Group = &one
	}
	p.Users = slices.DeleteFunc(cc.Usage().Uses,
		func(u Use) bool { return u.Key.Cluster != cluster || len(u.Owners) == 0 })

	return true
}

// spelled returns the index of the cluster whose unescaped namespace and name
// equal text, or -1 if there is none or more than one.
func (p *debugPage) spelled(text string) int {
	found := -1
	for i, s := range p.Clusters {
		switch {
		case s.Cluster.String() != text:
		case found >= 0:
			return -1
		default:
			found = i
		}
	}

	return found
}

// trouble ranks a cluster for the order of the page: larger is worse.
func (p *debugPage) trouble(s status.Cluster) int {
	h := p.holding(s)
	switch {
	case !s.Connected:
		return 3
	case s.Phase != status.PhaseReady, h != nil && h.Owner == "":
		return 2
	case s.Stale || s.LastError != nil || s.Unmapped > 0 || s.Synced < s.Informers:
		return 1
	}

	return 0
}

// timeline returns the last changes of a cluster's phase, the latest first; nil
// has none.
func timeline(c *cluster) []debugChange {
	if c == nil {
		return nil
	}
	var out []debugChange
	for _, t := range slices.Backward(c.conn.View().Timeline) {
		out = append(out, debugChange{Time: t.Time, Phase: status.Phase(t.Phase.String()), Reason: t.Reason})
	}
	return out
}
