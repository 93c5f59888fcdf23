// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
)

// DebugHandler returns a page about the clusters for people: which are not connected and why, what is watched in each,
// and how its informers stand. The manager's AddMetricsServerExtraHandler takes it:
//
//	err := mgr.AddMetricsServerExtraHandler("/debug/clusters", cc.DebugHandler())
//
// Queries narrow it: ?cluster=namespace/name for one cluster with its watches, ?phase=Disconnected, and ?format=json for
// programs. It shows no credential, but the names of clusters and kinds, and addresses that could not be reached: serve it
// to whom may know these. It does no I/O, and changes nothing.
func (cc *ClusterCache) DebugHandler() http.Handler { return http.HandlerFunc(cc.serveDebug) }

func (cc *ClusterCache) serveDebug(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	page := cc.debugPage(time.Now(), Phase(query.Get("phase")))
	if name := query.Get("cluster"); name != "" && !page.focus(cc, name) {
		http.Error(w, "this cluster is not known", http.StatusNotFound)
		return
	}
	// Written at once, so that an error is no half page.
	var body bytes.Buffer
	var err error
	if query.Get("format") == "json" {
		h.Set("Content-Type", "application/json")
		out := json.NewEncoder(&body)
		out.SetIndent("", "  ")
		err = out.Encode(page)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = debugTemplate.Execute(&body, page)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes())
}

// debugPage is what the page shows.
type debugPage struct {
	Time     time.Time      `json:"time"`
	Name     string         `json:"cache"`
	Clusters []debugCluster `json:"clusters"`

	All                []debugCluster `json:"-"` // Clusters are those of them in Phase
	Phase              Phase          `json:"-"`
	Phases             []debugPhase   `json:"-"`
	Detail             *debugCluster  `json:"-"`
	Informers, Objects int            `json:"-"`
	Bytes              int64          `json:"-"`
}

type debugPhase struct {
	Phase Phase
	Count int
}

// debugCluster is a Status in words.
type debugCluster struct {
	Cluster          string       `json:"cluster"`
	Phase            Phase        `json:"phase"`
	Since            time.Time    `json:"since"`
	Connected        bool         `json:"connected"`
	Reason           string       `json:"reason,omitempty"`
	Message          string       `json:"message,omitempty"`
	Help             string       `json:"help,omitempty"`
	LastLife         time.Time    `json:"lastLife,omitzero"`
	UID              string       `json:"uid,omitempty"`
	Epoch            string       `json:"epoch,omitempty"`
	Revision         string       `json:"revision,omitempty"`
	CredentialExpiry time.Time    `json:"credentialExpiry,omitzero"`
	Connects         int          `json:"connects"`
	HistoryResets    int          `json:"historyResets"`
	Watches          int          `json:"watches"`
	Unmapped         int          `json:"unmapped"`
	Informers        int          `json:"informers"`
	Synced           int          `json:"synced"`
	Objects          int          `json:"objects"`
	Bytes            int64        `json:"bytes"`
	References       int          `json:"references"`
	Stalls           int64        `json:"stalls"`
	Rejected         int64        `json:"rejected"`
	Stale            bool         `json:"stale"`
	OldestProof      time.Time    `json:"oldestProof,omitzero"`
	WatchList        []debugWatch `json:"watchList,omitempty"`

	status Status
}

// debugWatch is a WatchStatus in words.
type debugWatch struct {
	Kind            string    `json:"kind"`
	Selects         string    `json:"selects,omitempty"`
	References      int       `json:"references"`
	Mapped          bool      `json:"mapped"`
	Message         string    `json:"message,omitempty"`
	State           string    `json:"state,omitempty"`
	Synced          bool      `json:"synced"`
	Since           time.Time `json:"since,omitzero"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	LastEvent       time.Time `json:"lastEvent,omitzero"`
	LastProof       time.Time `json:"lastProof,omitzero"`
	Objects         int       `json:"objects"`
	Bytes           int64     `json:"bytes"`
	Lists           int64     `json:"lists"`
	Watches         int64     `json:"watches"`
	Resumes         int64     `json:"resumes"`
	Resyncs         int64     `json:"resyncs"`
	Stalls          int64     `json:"stalls"`
	Rejected        int64     `json:"rejected"`
}

// debugPage looks at every cluster. Those in trouble come first.
func (cc *ClusterCache) debugPage(now time.Time, only Phase) *debugPage {
	p := &debugPage{Time: now, Name: cc.options.Name, Phase: only, Clusters: []debugCluster{}}
	counts := map[Phase]int{}
	for _, s := range cc.Statuses() {
		c := newDebugCluster(s)
		counts[s.Phase]++
		p.Informers += s.Informers
		p.Objects += s.Objects
		p.Bytes += s.Bytes
		p.All = append(p.All, c)
		if only == "" || s.Phase == only {
			p.Clusters = append(p.Clusters, c)
		}
	}
	for _, phase := range phasesInOrder {
		p.Phases = append(p.Phases, debugPhase{Phase: phase, Count: counts[phase]})
	}
	slices.SortFunc(p.Clusters, func(a, b debugCluster) int {
		return cmp.Or(b.trouble()-a.trouble(), cmp.Compare(a.Cluster, b.Cluster))
	})
	return p
}

// focus makes the page one of a single cluster. It returns false if there is none of that name.
func (p *debugPage) focus(cc *ClusterCache, name string) bool {
	i := slices.IndexFunc(p.All, func(c debugCluster) bool { return c.Cluster == name })
	if i < 0 {
		return false
	}
	p.Detail = &p.All[i]
	watches, _ := cc.WatchStatuses(p.Detail.status.Cluster) // none, if it was forgotten in this moment
	for _, s := range watches {
		p.Detail.WatchList = append(p.Detail.WatchList, newDebugWatch(s))
	}
	p.Clusters = []debugCluster{*p.Detail}
	return true
}

func newDebugCluster(s Status) debugCluster {
	c := debugCluster{
		Cluster: clusterName(s.Cluster), Phase: s.Phase, Since: s.Since, Connected: s.Connected, Reason: s.Reason,
		LastLife: s.LastLife, UID: s.UID, Epoch: s.Epoch, Revision: s.Revision, CredentialExpiry: s.CredentialExpiry,
		Connects: s.Connects, HistoryResets: s.HistoryResets, Watches: s.Watches, Unmapped: s.Unmapped, Informers: s.Informers,
		Synced: s.Synced, Objects: s.Objects, Bytes: s.Bytes, References: s.References, Stalls: s.Stalls, Rejected: s.Rejected,
		Stale: s.Stale, OldestProof: s.OldestProof, status: s,
	}
	if s.LastError != nil {
		c.Message = s.LastError.Error()
		c.Help = reasons[s.Reason]
	}
	return c
}

// trouble orders clusters: the larger, the worse.
func (c debugCluster) trouble() int {
	switch {
	case !c.Connected:
		return 3
	case c.Phase != PhaseReady:
		return 2
	case c.Stale || c.Message != "" || c.Unmapped > 0 || c.Synced < c.Informers:
		return 1
	}
	return 0
}

func newDebugWatch(s WatchStatus) debugWatch {
	i := s.Informer
	w := debugWatch{Kind: kindName(s.GVK), References: s.References, Mapped: s.Mapped}
	if s.LastError != nil {
		w.Message = s.LastError.Error()
	}
	var selects []string
	for _, part := range []string{s.Namespace, s.LabelSelector, s.FieldSelector} {
		if part != "" {
			selects = append(selects, part)
		}
	}
	w.Selects = strings.Join(selects, ", ")
	if !s.Mapped {
		return w
	}
	w.State, w.Synced, w.Since, w.ResourceVersion = fmt.Sprint(i.State), i.Synced, i.Since, i.ResourceVersion
	w.LastEvent, w.LastProof, w.Objects, w.Bytes = i.LastEvent, i.LastProof, i.Objects, i.Bytes
	w.Lists, w.Watches, w.Resumes, w.Resyncs, w.Stalls, w.Rejected = i.Lists, i.Watches, i.Resumes, i.Resyncs, i.Stalls, i.Rejected
	return w
}

//go:embed debug.html
var debugText string

var debugTemplate = template.Must(template.New("debug").Funcs(template.FuncMap{
	"ago":   ago,
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"bytes": sizeText,
	"count": countText,
	"since": func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return ago(t) + " ago"
	},
}).Parse(debugText))

// ago is the time since t, as people say it.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// countText is a number of things.
func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sizeText is a number of bytes, as people say it.
func sizeText(n int64) string {
	const unit = 1 << 10
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
}
