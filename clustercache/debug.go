// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// debugPage is the content of the page.
type debugPage struct {
	Time     time.Time `json:"time"`
	Name     string    `json:"cache"`
	Clusters []Status  `json:"clusters"` // the worst first
	// Watches are those of the requested cluster, and Users lists the owners
	// that declared them.
	Watches []WatchStatus `json:"watches,omitempty"`
	Users   []Use         `json:"users,omitempty"`
	// Reasons explains each reason that a cluster shows.
	Reasons map[string]string `json:"reasons,omitempty"`

	Focus  string       `json:"-"` // the requested cluster
	Phase  string       `json:"-"` // the requested phase
	Phases []debugPhase `json:"-"`
	Sum    Status       `json:"-"` // of all clusters
	Count  int          `json:"-"`
	Shared bool         `json:"-"` // by Options.Sharding
}

type debugPhase struct {
	Phase string
	Count int
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
	"ago":   ago,
	"name":  clusterName,
	"kind":  kindName,
	"what":  selects,
	"error": errorText,
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"bytes": sizeText,
	"owner": ownershipText,
	"count": countText,
	"since": func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return ago(t) + " ago"
	},
}).Parse(debugText))

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
