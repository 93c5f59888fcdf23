// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// runbookURL is where a failure's reason has a section.
const runbookURL = "https://github.com/fleetcache/fleetcache/blob/main/docs/runbook.md#"

// minRefresh and maxRefresh bound the seconds between two loads of a page.
const minRefresh, maxRefresh = 2, 3600

// debugPage is the content of the page.
type debugPage struct {
	Time     time.Time `json:"time"`
	Name     string    `json:"cache"`
	Clusters []Status  `json:"clusters"` // the worst first
	// Timeline has the last changes of the requested cluster's phase, the
	// latest first. Watches are its watches, and Users lists the owners that
	// declared them.
	Timeline []debugChange `json:"timeline,omitempty"`
	Watches  []WatchStatus `json:"watches,omitempty"`
	Users    []Use         `json:"users,omitempty"`
	// Reasons explains each reason that a cluster shows.
	Reasons map[string]string `json:"reasons,omitempty"`

	debugQuery `json:"-"`

	Focus  string       `json:"-"` // the requested cluster
	Phases []debugCount `json:"-"`
	Causes []debugCount `json:"-"` // by reason
	Groups []debugGroup `json:"-"` // of Clusters
	Sum    Status       `json:"-"` // of all clusters
	Count  int          `json:"-"`
	Shared bool         `json:"-"` // by Options.Sharding
}

// debugQuery is what a request selects.
type debugQuery struct {
	Phase   string // empty: any
	Reason  string // empty: any
	Search  string // words that have to occur
	Grouped bool   // by reason
	Refresh int    // seconds between two loads of the page; 0: never

	values url.Values
}

// debugChange is a change of phase.
type debugChange struct {
	Time   time.Time `json:"time"`
	Phase  Phase     `json:"phase"`
	Reason string    `json:"reason,omitempty"`
}

// debugCount is the number of clusters with one phase or reason.
type debugCount struct {
	Name  string
	Count int
}

// debugGroup is a table of the page.
type debugGroup struct {
	Heading  string // the reason, if clusters are grouped
	Clusters []Status
}

// debugField is a hidden field of the search form.
type debugField struct{ Name, Value string }

func newDebugQuery(values url.Values) debugQuery {
	q := debugQuery{
		Phase:   values.Get("phase"),
		Reason:  values.Get("reason"),
		Search:  strings.TrimSpace(values.Get("q")),
		Grouped: values.Get("group") == "reason",
		values:  values,
	}
	if seconds, err := strconv.Atoi(values.Get("refresh")); err == nil && seconds > 0 {
		q.Refresh = min(max(seconds, minRefresh), maxRefresh)
	}
	return q
}

// Filtered reports whether clusters may be left out.
func (q debugQuery) Filtered() bool { return q.Phase != "" || q.Reason != "" || q.Search != "" }

// Link returns the address of the same page with another value of a parameter;
// an empty value takes it away.
func (q debugQuery) Link(name, value string) string {
	values := url.Values{}
	for _, field := range append(q.fields("cluster", "q"), debugField{Name: name, Value: value}) {
		values.Set(field.Name, field.Value)
		if field.Value == "" {
			values.Del(field.Name)
		}
	}
	return "?" + values.Encode()
}

// Hidden returns the parameters that a search keeps.
func (q debugQuery) Hidden() []debugField { return q.fields() }

// fields returns the parameters that select and arrange clusters, and the given
// ones, as far as they are set.
func (q debugQuery) fields(also ...string) []debugField {
	var out []debugField
	for _, name := range append([]string{"phase", "reason", "group", "refresh"}, also...) {
		if value := q.values.Get(name); value != "" {
			out = append(out, debugField{Name: name, Value: value})
		}
	}
	return out
}

// selects reports whether a cluster is on the page.
func (q debugQuery) selects(s Status) bool {
	if q.Phase != "" && q.Phase != string(s.Phase) || q.Reason != "" && q.Reason != s.Reason {
		return false
	}
	text := strings.ToLower(strings.Join([]string{
		clusterName(s.Cluster),
		string(s.Phase),
		s.Reason,
		errorText(s.LastError),
		s.Endpoint,
		s.ServerVersion,
	}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.Search)) {
		if !strings.Contains(text, word) {
			return false
		}
	}

	return true
}

// arrange counts the phases and reasons of all clusters, and forms the tables
// of those that are selected.
func (p *debugPage) arrange(all []Status) {
	phases, causes := map[string]int{}, map[string]int{}
	for _, s := range all {
		phases[string(s.Phase)]++
		causes[s.Reason]++
		if s.Reason != "" {
			p.Reasons[s.Reason] = reasons[s.Reason]
		}
		if p.selects(s) {
			p.Clusters = append(p.Clusters, s)
		}
	}
	for _, phase := range phasesInOrder {
		if n := phases[string(phase)]; n > 0 {
			p.Phases = append(p.Phases, debugCount{Name: string(phase), Count: n})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		p.Causes = append(p.Causes, debugCount{Name: reason, Count: causes[reason]})
	}
	slices.SortStableFunc(p.Causes, func(a, b debugCount) int { return b.Count - a.Count })
	slices.SortStableFunc(p.Clusters, func(a, b Status) int { return trouble(b) - trouble(a) })

	switch {
	case len(p.Clusters) == 0:
	case p.Grouped:
		p.group()
	default:
		p.Groups = []debugGroup{{Clusters: p.Clusters}}
	}
}

// group forms a table for each reason, the most frequent first, and one for
// clusters without a reason.
func (p *debugPage) group() {
	for _, cause := range append(slices.Clone(p.Causes), debugCount{}) {
		g := debugGroup{Heading: cause.Name}
		for _, s := range p.Clusters {
			if s.Reason == cause.Name {
				g.Clusters = append(g.Clusters, s)
			}
		}
		if cause.Name == "" {
			g.Heading = "Without a reason"
		}
		if len(g.Clusters) > 0 {
			p.Groups = append(p.Groups, g)
		}
	}
}

// focus narrows the page to one cluster, given its name as in the page's links
// or as plain text. It returns false if there is no such cluster.
func (p *debugPage) focus(cc *ClusterCache, name string) bool {
	i := slices.IndexFunc(p.Clusters, func(s Status) bool { return clusterName(s.Cluster) == name })
	if i < 0 {
		i = p.spelled(name)
	}
	if i < 0 {
		return false
	}
	p.Clusters = p.Clusters[i : i+1]
	cluster := p.Clusters[0].Cluster
	p.Focus = clusterName(cluster)
	p.Watches, _ = cc.WatchStatuses(cluster) // none if the cluster was forgotten meanwhile
	p.Timeline = timeline(cc.find(cluster))
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
func trouble(s Status) int {
	switch {
	case !s.Connected:
		return 3
	case s.Phase != PhaseReady:
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
		out = append(out, debugChange{Time: t.Time, Phase: Phase(t.Phase.String()), Reason: t.Reason})
	}
	return out
}

// selects describes which objects of a kind are watched.
func selects(s WatchStatus) string {
	parts := slices.DeleteFunc([]string{s.Namespace, s.LabelSelector, s.FieldSelector},
		func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

//go:embed debug.html
var debugText string

var debugTemplate = template.Must(template.New("debug").Funcs(template.FuncMap{
	"ago":         ago,
	"name":        clusterName,
	"kind":        kindName,
	"what":        selects,
	"error":       errorText,
	"stamp":       stamp,
	"bytes":       sizeText,
	"owner":       ownershipText,
	"count":       countText,
	"attempts":    attemptsText,
	"credentials": credentialsText,
	"unmapped":    unmappedText,
	"runbook":     runbookOf,
	"phasebook":   func(p Phase) string { return runbookURL + "phase-" + strings.ToLower(string(p)) },
	"since": func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return ago(t) + " ago"
	},
}).Parse(debugText))

// runbookOf returns the address of a reason's section of the runbook, or
// nothing if it has none.
func runbookOf(reason string) string {
	if _, known := reasons[reason]; !known {
		return ""
	}
	return runbookURL + strings.ToLower(reason)
}

// unmappedText returns why a watch has no informer.
func unmappedText(connected bool, err error) string {
	switch {
	case !connected:
		return "Not connected: the kind is looked up once the cluster is."
	case meta.IsNoMatchError(err):
		return "The cluster does not serve this kind."
	case errors.Is(err, ErrNotWatchable):
		return "The cluster serves this kind without watches."
	}

	return "The kind is being looked up."
}

// attemptsText returns how many attempts failed, and when the next is due.
func attemptsText(s Status) string {
	text := "none failed"
	if s.Failures > 0 {
		text = countText(s.Failures, "attempt") + " failed"
	}
	switch wait := time.Until(s.NextAttempt); {
	case s.NextAttempt.IsZero() && s.Failures > 0 && s.Phase != PhaseGone:
		return text + ", one is under way"
	case s.NextAttempt.IsZero():
		return text
	default:
		return text + ", the next in " + durationText(max(wait, 0))
	}
}

// credentialsText returns how long a cluster's credentials have been in use,
// and when they end.
func credentialsText(s Status) string {
	if s.AccessSince.IsZero() {
		return "none in use"
	}
	text := "in use for " + ago(s.AccessSince)
	switch left := time.Until(s.CredentialExpiry); {
	case s.CredentialExpiry.IsZero():
		return text + ", end unknown"
	case left < 0:
		return text + ", ended " + ago(s.CredentialExpiry) + " ago"
	default:
		return text + ", end in " + durationText(left) + " (" + stamp(s.CredentialExpiry) + ")"
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ownershipText returns what this replica has to do with a cluster.
func ownershipText(s *ownership.State) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s, slot %d", ownershipOf(s), s.Slot)
}

// ownershipOf returns the state of an ownership as a word.
func ownershipOf(s *ownership.State) string {
	switch {
	case s.Owned:
		return "owned"
	case s.Draining:
		return "draining"
	case s.StandsBy:
		return "standby"
	}

	return "other"
}

// ago returns the time since t in human-readable form.
func ago(t time.Time) string { return durationText(time.Since(t)) }

// durationText returns a duration in human-readable form.
func durationText(d time.Duration) string {
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

// countText returns a number with its noun.
func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sizeText returns a number of bytes in human-readable form.
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
