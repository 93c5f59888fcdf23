// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetcache/fleetcache/clustercache/internal/markup"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// runbookURL has a section for each phase and for the reason of each failure.
const runbookURL = "https://github.com/fleetcache/fleetcache/blob/main/docs/runbook.md"

// absent is shown in place of an empty text.
const absent = "–"

// debugTags are those with classes of the style sheet, and those of links out
// of the page.
var debugTags = struct {
	dim, box, scroll, stack                    markup.Tag // blocks
	aside, stale, pending, outward             markup.Tag // parts of a text
	headRow, keyTD, numberTH, numberTD, textTD markup.Tag
}{
	dim:      markup.P.Class("dim"),
	box:      markup.Div.Class("box"),
	scroll:   markup.Div.Class("scroll"),
	stack:    markup.Table.Class("stack"), // its rows are blocks on a phone
	aside:    markup.Span.Class("dim"),
	stale:    markup.B.Class("Disconnected"),
	pending:  markup.Span.Class("Pending"),
	outward:  markup.A.Fixed("rel", "noreferrer"),
	headRow:  markup.TR.Class("head"),
	keyTD:    markup.TD.Class("key"),
	numberTH: markup.TH.Class("n"),
	numberTD: markup.TD.Class("n"),
	textTD:   markup.TD.Class("text"),
}

// debugHTML writes a debugPage as HTML.
type debugHTML struct {
	markup.Page
	*debugPage
}

// html returns the page as HTML.
func (p *debugPage) html() []byte {
	h := &debugHTML{debugPage: p}
	h.Document(func() {
		h.Element(markup.Head, h.head)
		h.Element(markup.Body, func() {
			if h.focused == "" {
				h.overview()
			} else {
				h.cluster(h.Clusters[0])
			}
		})
	})
	return h.Bytes()
}

func (h *debugHTML) head() {
	h.Void(markup.Meta.Fixed("charset", "utf-8"))
	h.Void(markup.Meta.Fixed("name", "viewport").Fixed("content", "width=device-width, initial-scale=1"))
	if h.refresh > 0 {
		h.Void(markup.Meta.Fixed("http-equiv", "refresh").Number("content", h.refresh))
	}
	title := "fleetcache"
	if h.focused != "" {
		title += ": " + h.focused
	}
	h.Leaf(markup.Title, title)
	h.Style(debugStyle)
}

// overview writes the body of the page of all clusters.
func (h *debugHTML) overview() {
	h.Element(markup.H1, func() {
		h.Text("fleetcache ")
		h.Leaf(debugTags.aside, h.Name)
	})
	h.Element(debugTags.dim, func() {
		h.Text(strings.Join([]string{
			countText(h.count, "cluster"),
			countText(h.sum.Informers, "informer"),
			countText(h.sum.Objects, "object"),
			sizeText(h.sum.Bytes),
			"as of " + stamp(h.Time),
		}, ", "))
		h.controls()
	})
	h.searchForm()
	h.phaseLinks()
	if len(h.causes) > 0 {
		h.reasonLinks()
	}
	if h.group != nil {
		h.replicas()
	}
	for _, g := range h.groups {
		h.clusterTable(g)
	}
	if len(h.Elsewhere) > 0 {
		h.elsewhere()
	} else if len(h.groups) == 0 {
		h.Leaf(debugTags.dim, h.noClusters())
	}
}

// controls writes the links for loading the page again, and for programs.
func (h *debugHTML) controls() {
	h.Text(" · ")
	if h.refresh > 0 {
		h.Text("refreshes every ", strconv.Itoa(h.refresh), " s, ")
		h.Leaf(markup.A.Link(h.link("refresh", "")), "stop")
	} else {
		h.Leaf(markup.A.Link(h.link("refresh", "10")), "refresh every 10 s")
	}
	h.Text(" · ")
	h.Leaf(markup.A.Link(h.link("format", "json")), "JSON")
}

func (h *debugHTML) searchForm() {
	h.Element(markup.Form.Fixed("method", "get"), func() {
		h.Void(markup.Input.Fixed("type", "search").Field("q", h.search).
			Fixed("placeholder", "name, reason, error, endpoint").Fixed("aria-label", "Search"))
		for _, field := range h.fields() {
			h.Void(markup.Input.Fixed("type", "hidden").Field(field.name, field.value))
		}
		h.Leaf(markup.Button, "Search")
	})
}

func (h *debugHTML) phaseLinks() {
	h.Element(markup.Nav.Fixed("aria-label", "Phases"), func() {
		h.choice("phase", "", h.phase == "", "All "+strconv.Itoa(h.count))
		for _, phase := range h.phases {
			h.choice("phase", phase.name, phase.name == h.phase, phase.String(), phase.name)
		}
	})
}

func (h *debugHTML) reasonLinks() {
	h.Element(markup.Nav.Fixed("aria-label", "Reasons"), func() {
		h.choice("reason", "", h.reason == "", "Any reason")
		for _, cause := range h.causes {
			h.choice("reason", cause.name, cause.name == h.reason, cause.String())
		}
		if h.grouped {
			h.choice("group", "", true, "Grouped by reason")
		} else {
			h.choice("group", "reason", false, "Group by reason")
		}
	})
}

// choice writes a link that sets a parameter.
func (h *debugHTML) choice(name, value string, chosen bool, text string, classes ...string) {
	if chosen {
		classes = append(classes, "on")
	}
	link := markup.A.Link(h.link(name, value))
	if len(classes) > 0 {
		link = link.Class(classes...)
	}
	h.Text("\n")
	h.Leaf(link, text)
}

// noClusters returns why the page shows none.
func (h *debugHTML) noClusters() string {
	if !h.filtered() {
		return "No cluster is known. Clusters become known by Engage, Watch, or Options.Discover."
	}
	text := "No cluster"
	if h.phase != "" {
		text += " is " + h.phase
	}
	if h.reason != "" {
		text += " has the reason " + h.reason
	}
	if h.search != "" {
		text += " matches “" + h.search + "”"
	}
	return text + "."
}

func (h *debugHTML) clusterTable(g debugGroup) {
	if g.heading != "" {
		h.Element(markup.H2, func() {
			h.Text(g.heading, " ")
			h.Leaf(debugTags.aside, strconv.Itoa(len(g.clusters)))
		})
		if explanation := h.Reasons[g.heading]; explanation != "" {
			h.Leaf(debugTags.dim, explanation)
		}
	}
	h.table(debugTags.stack, func() {
		h.Element(debugTags.headRow, func() {
			h.headings(markup.TH, "Cluster", "Phase", "For")
			if h.shared {
				h.headings(markup.TH, "Ownership")
			}
			if h.group != nil {
				h.headings(markup.TH, "Owner")
			}
			h.headings(markup.TH, "Last life", "Server")
			h.headings(debugTags.numberTH, "Watches", "Informers", "Objects", "Size")
			h.headings(markup.TH, "Why")
		})
		for _, s := range g.clusters {
			h.Element(markup.TR, func() { h.clusterRow(s) })
		}
	})
}

func (h *debugHTML) clusterRow(s status.Cluster) {
	name := clusterName(s.Cluster)
	query := url.Values{"cluster": {name}}
	if h.refresh > 0 {
		query.Set("refresh", strconv.Itoa(h.refresh))
	}
	h.Element(debugTags.keyTD, func() { h.Leaf(markup.A.Link(markup.Query(query)), name) })
	h.Leaf(markup.TD.Class("state", phaseClass(s)), string(s.Phase))
	h.Leaf(markup.TD, ago(s.Since))
	if h.shared {
		h.Leaf(markup.TD, ownershipText(s.Ownership))
	}
	if h.group != nil {
		h.owner(markup.TD, h.holding(s))
	}
	h.Leaf(markup.TD, sinceText(s.LastLife))
	h.Leaf(markup.TD, s.ServerVersion)
	h.numbers(
		strconv.Itoa(s.Watches),
		strconv.Itoa(s.Synced)+"/"+strconv.Itoa(s.Informers),
		strconv.Itoa(s.Objects),
		sizeText(s.Bytes),
	)
	h.Element(debugTags.textTD, func() { h.why(s) })
}

// phaseClass returns the class that colors a cluster's phase. A Ready cluster
// with a reason, such as a watch that is forbidden, is not one that is well.
func phaseClass(s status.Cluster) string {
	if s.Phase == status.PhaseReady && s.Reason != "" {
		return "impaired"
	}
	return string(s.Phase)
}

// why writes what is wrong with a cluster.
func (h *debugHTML) why(s status.Cluster) {
	h.whyNotOwned(h.holding(s))
	if s.Stale {
		h.Leaf(debugTags.stale, "stale")
		h.Text(" ")
	}
	if s.Reason != "" {
		reason := func() { h.Leaf(markup.B, s.Reason) }
		if section, known := runbookOf(s.Reason); known {
			h.Element(debugTags.outward.Link(section), reason)
		} else {
			reason()
		}
		h.Text(" ")
	}
	h.Text(text(s.LastError))
	if s.Failures > 0 {
		h.Text(" ")
		h.Leaf(debugTags.aside, "· ", attemptsText(s))
	}
	if s.LastError != nil && s.Endpoint != "" {
		h.Text(" ")
		h.Leaf(debugTags.aside, "· ", s.Endpoint)
	}
}

// cluster writes the body of the page of one cluster.
func (h *debugHTML) cluster(s status.Cluster) {
	h.Element(markup.P, func() { h.Leaf(markup.A.Link(h.link("cluster", "")), "All clusters") })
	h.Element(markup.H1, func() {
		h.Text(h.focused, " ")
		h.Leaf(markup.Span.Class(phaseClass(s)), string(s.Phase))
	})
	h.Element(debugTags.dim, func() {
		h.Text("for ", ago(s.Since), ", as of ", stamp(h.Time), " · ")
		h.Leaf(debugTags.outward.Link(markup.Section(runbookURL, "phase-"+strings.ToLower(string(s.Phase)))), "runbook")
		h.controls()
	})
	if s.LastError != nil {
		h.Element(debugTags.box, func() { h.failure(s) })
	}
	h.Element(markup.DL, func() {
		h.connectionFacts(s)
		h.accessFacts(s)
		h.cacheFacts(s)
	})
	h.Leaf(markup.H2, "Last changes")
	h.timelineTable()
	h.Leaf(markup.H2, "Watches")
	h.watchTable(s.Connected)
	if len(h.Users) > 0 {
		h.Leaf(markup.H2, "Declared by")
		h.ownerTable()
	}
}

// failure writes why a cluster is not as it should be.
func (h *debugHTML) failure(s status.Cluster) {
	h.Element(markup.P, func() {
		h.Leaf(markup.B, s.Reason)
		if explanation := h.Reasons[s.Reason]; explanation != "" {
			h.Text(": ", explanation)
		}
		if section, known := runbookOf(s.Reason); known {
			h.Text(" ")
			h.Leaf(debugTags.outward.Link(section), "What to do")
		}
	})
	h.Leaf(markup.P, text(s.LastError))
	if s.Connected {
		h.Leaf(debugTags.dim, "It is connected all the same: what worked before goes on.")
	}
}

func (h *debugHTML) connectionFacts(s status.Cluster) {
	if o := s.Ownership; o != nil {
		text := ownershipText(o) + ", token " + strconv.FormatInt(o.Token, 10)
		if !o.Since.IsZero() {
			text += ", for " + ago(o.Since)
		}
		h.fact("Ownership", text)
	}
	h.ownerFacts(s)
	h.fact("Last sign of life", sinceText(s.LastLife))
	h.fact("Connected", connectedText(s), ", ", countText(s.Connects, "connection"), " so far")
	h.fact("Attempts", attemptsText(s))
	h.fact("Endpoint", cmp.Or(s.Endpoint, absent))
	h.fact("Server", cmp.Or(s.ServerVersion, absent))
	h.fact("Cluster UID", cmp.Or(s.UID, absent))
	if len(s.SameAs) > 0 {
		h.fact("Same as", strings.Join(namesOf(s.SameAs), " "), ": these keys lead to one cluster")
	}
	h.fact("Epoch", cmp.Or(s.Epoch, absent), ", ", countText(s.HistoryResets, "change"), " of history")
}

func (h *debugHTML) accessFacts(s status.Cluster) {
	if len(s.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
			labels = append(labels, key+"="+s.Labels[key])
		}
		h.fact("Labels", strings.Join(labels, " "))
	}
	h.fact("Access revision", cmp.Or(s.Revision, absent))
	h.fact("Credentials", credentialsText(s))
}

func (h *debugHTML) cacheFacts(s status.Cluster) {
	h.fact("Cached", countText(s.Objects, "object"), ", ", sizeText(s.Bytes), ", last changed ", sinceText(s.LastEvent))
	h.Leaf(markup.DT, "Informers")
	h.Element(markup.DD, func() {
		h.Text(strconv.Itoa(s.Synced), " of ", strconv.Itoa(s.Informers), " synced")
		if s.Stale {
			h.Text(", ")
			h.Leaf(debugTags.stale, "stale")
			h.Text(": no sign of life for ", ago(s.OldestSeen))
		}
	})
	h.fact("Trouble", strconv.FormatInt(s.Stalls, 10), " stalled streams, ",
		strconv.FormatInt(s.Rejected, 10), " objects refused")
}

// fact writes a term with its description.
func (h *debugHTML) fact(term string, parts ...string) {
	h.Leaf(markup.DT, term)
	h.Leaf(markup.DD, parts...)
}

func (h *debugHTML) timelineTable() {
	if len(h.Timeline) == 0 {
		h.Leaf(debugTags.dim, "The phase has not changed yet.")
		return
	}
	h.Element(markup.Table, func() {
		for _, change := range h.Timeline {
			h.Element(markup.TR, func() {
				h.Leaf(markup.TD, ago(change.Time), " ago")
				h.Leaf(markup.TD.Class(string(change.Phase)), string(change.Phase))
				h.Leaf(debugTags.textTD, change.Reason)
			})
		}
	})
}

func (h *debugHTML) watchTable(connected bool) {
	if len(h.Watches) == 0 {
		h.Leaf(debugTags.dim, "Nothing is watched.")
		return
	}
	h.table(debugTags.stack, func() {
		h.Element(debugTags.headRow, func() {
			h.headings(markup.TH, "Kind", "Selects")
			h.headings(debugTags.numberTH, "Holds")
			h.headings(markup.TH, "Informer", "For")
			h.headings(debugTags.numberTH, "Objects", "Size")
			h.headings(markup.TH, "Version", "Last event", "Last life")
			h.headings(debugTags.numberTH, "Lists", "Watches", "Resumes")
			h.headings(markup.TH, "Error")
		})
		for _, w := range h.Watches {
			h.Element(markup.TR, func() { h.watchRow(connected, w) })
		}
	})
}

func (h *debugHTML) watchRow(connected bool, w status.Watch) {
	h.Leaf(debugTags.keyTD, kindName(w.GVK))
	h.Leaf(markup.TD, selectionText(w))
	h.numbers(strconv.Itoa(w.References))
	if !w.Mapped {
		h.Element(markup.TD.Fixed("colspan", "11").Class("text"), func() {
			h.Leaf(debugTags.pending, unmappedText(connected, w.LastError))
			h.Text(" ", text(w.LastError))
		})
		return
	}
	i := w.Informer
	h.Element(markup.TD.Class("state"), func() {
		h.Text(string(i.State))
		if !i.Synced {
			h.Text(", ")
			h.Leaf(debugTags.pending, "not synced")
		}
		switch {
		case i.Unversioned:
			h.Text(", polled: no versions")
		case i.Polling:
			h.Text(", polled")
		}
	})
	h.Leaf(markup.TD, ago(i.Since))
	h.numbers(strconv.Itoa(i.Objects), sizeText(i.Bytes))
	h.Leaf(markup.TD, i.ResourceVersion)
	h.Leaf(markup.TD, sinceText(i.LastEvent))
	h.Leaf(markup.TD, sinceText(i.LastSeen))
	h.numbers(
		strconv.FormatInt(i.Lists, 10),
		strconv.FormatInt(i.Watches, 10),
		strconv.FormatInt(i.Resumes, 10),
	)
	h.Leaf(debugTags.textTD, text(w.LastError))
}

// ownerTable writes which owners declared which watches.
func (h *debugHTML) ownerTable() {
	h.table(markup.Table, func() {
		h.Element(markup.TR, func() { h.headings(markup.TH, "Watch", "Owners") })
		for _, use := range h.Users {
			h.Element(markup.TR, func() {
				h.Leaf(markup.TD, use.Key.String())
				var owners []string
				for _, o := range use.Owners {
					owners = append(owners, o.String())
				}
				h.Leaf(debugTags.textTD, strings.Join(owners, ", "))
			})
		}
	})
}

// table writes a table that scrolls if it is too wide.
func (h *debugHTML) table(tag markup.Tag, rows func()) {
	h.Element(debugTags.scroll, func() { h.Element(tag, rows) })
}

func (h *debugHTML) headings(tag markup.Tag, texts ...string) {
	for _, text := range texts {
		h.Leaf(tag, text)
	}
}

func (h *debugHTML) numbers(texts ...string) {
	for _, text := range texts {
		h.Leaf(debugTags.numberTD, text)
	}
}

// String returns the text of a link to the clusters that were counted.
func (c debugCount) String() string { return c.name + " " + strconv.Itoa(c.count) }

// runbookOf returns the section of a reason, and whether it has one.
func runbookOf(reason string) (markup.Address, bool) {
	known := status.Explain(reason) != ""
	return markup.Section(runbookURL, strings.ToLower(reason)), known
}
