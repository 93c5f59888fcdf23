// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// column describes a column of the table.
type column struct {
	title string
	right bool // whether its cells are aligned on the right
	leave int  // the order in which columns leave a table that is too wide; 0: never
}

var columns = [...]column{
	{title: "CLUSTER"},
	{title: "PHASE"},
	{title: "REASON"},
	{title: "STALE", right: true, leave: 5},
	{title: "INFORMERS", right: true, leave: 2},
	{title: "OBJECTS", right: true, leave: 3},
	{title: "BYTES", right: true, leave: 1},
	{title: "EVENTS/S", right: true, leave: 4},
}

const (
	// gap separates columns.
	gap = "  "
	// leastName is the least width that cluster names are cut to.
	leastName = 8
)

// cells are the texts of a line of the table.
type cells [len(columns)]string

// table returns the lines of a table: the titles, a line for each row, and the
// totals of all, which may be more than the rows. No line is wider than width;
// zero means no limit.
func table(rows, all []row, width int) []string {
	var titles cells
	for i, c := range columns {
		titles[i] = c.title
	}
	lines := []cells{titles}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	lines = append(lines, totals(all))
	widths := fit(lines, width)

	texts := make([]string, 0, len(lines))
	for _, line := range lines {
		texts = append(texts, clip(line.text(widths), width))
	}
	return texts
}

// fit returns the width of each column; 0 means that the column has left.
func fit(lines []cells, width int) (widths [len(columns)]int) {
	for i := range columns {
		for _, line := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
	}
	excess := func() int {
		sum := -len(gap)
		for _, w := range widths {
			if w > 0 {
				sum += len(gap) + w
			}
		}
		return sum - width
	}
	for leave := 1; width > 0 && leave <= len(columns) && excess() > 0; leave++ {
		for i, c := range columns {
			if c.leave == leave {
				widths[i] = 0
			}
		}
	}
	if width > 0 && excess() > 0 {
		widths[0] = max(widths[0]-excess(), min(widths[0], leastName))
	}
	return widths
}

// text returns a line with its columns padded to their widths.
func (l cells) text(widths [len(columns)]int) string {
	var parts []string
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		cell := clip(l[i], widths[i])
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if c.right {
			cell = padding + cell
		} else {
			cell += padding
		}
		parts = append(parts, cell)
	}
	return strings.TrimRight(strings.Join(parts, gap), " ")
}

func (r row) cells() cells {
	return cells{
		clusterName(r.Cluster), string(r.Phase), r.reason(), age(r.staleness()),
		informers(r.Synced, r.Informers), strconv.Itoa(r.Objects), size(r.Bytes), rate(r.rate),
	}
}

// totals returns the last line: the sums, and the greatest staleness.
func totals(rows []row) cells {
	var sum row
	ready, stalest := 0, never
	for _, r := range rows {
		if r.Phase == status.PhaseReady {
			ready++
		}
		stalest = max(stalest, r.staleness())
		sum.Synced += r.Synced
		sum.Informers += r.Informers
		sum.Objects += r.Objects
		sum.Bytes += r.Bytes
		sum.rate += r.rate
	}
	return cells{
		fmt.Sprintf("TOTAL %d", len(rows)), fmt.Sprintf("%d Ready", ready), "", age(stalest),
		informers(sum.Synced, sum.Informers), strconv.Itoa(sum.Objects), size(sum.Bytes), rate(sum.rate),
	}
}

// informers returns how many informers there are, and how many of them have
// synced if not all have.
func informers(synced, all int) string {
	if synced == all {
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d/%d", synced, all)
}

func rate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', 1, 64) }

// age returns a duration in at most two units.
func age(d time.Duration) string {
	seconds := int(d / time.Second)
	switch {
	case d == never:
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%ds", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd%02dh", seconds/86400, seconds/3600%24)
}

// size returns a number of bytes as quantities of Kubernetes have it.
func size(bytes int64) string {
	value, unit := float64(bytes), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if value < 1000 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "" || value >= 99.95 {
		return fmt.Sprintf("%.0f%s", value, unit)
	}
	return fmt.Sprintf("%.1f%s", value, unit)
}

// clip cuts a text that is wider than width; zero means no limit.
func clip(text string, width int) string {
	if width == 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// printable returns a text as one line that a terminal shows as it is: text from
// elsewhere may contain control characters.
func printable(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)), " ")
}
