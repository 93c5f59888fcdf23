// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"
)

// frame is the state of the fleet at one moment. It is read-only.
type frame struct {
	at   time.Time
	rows []row // worst first
}

// row returns the row of a cluster; the zero row if there is none.
func (f frame) row(name string) row {
	for _, r := range f.rows {
		if clusterName(r.Cluster) == name {
			return r
		}
	}
	return row{}
}

// lines returns the table, below it why clusters are in trouble, and then the
// notes. All of it fits into width and height, where zero means no limit: the
// table gives up columns, and then the best clusters, but never the totals.
func (f frame) lines(width, height int, notes []string) []string {
	var below []string
	for _, r := range f.rows {
		if why := r.why(); why != "" {
			below = append(below, clusterName(r.Cluster)+": "+why)
		}
	}
	below = append(below, notes...)
	if len(below) > 0 {
		below = slices.Insert(below, 0, "")
	}
	rows, more := f.rows, 0
	if height > 0 {
		room := max(height-2, 2) // without the titles and the totals
		left := min(len(below), max(room-len(rows), room/3))
		if left < 2 {
			left = 0 // only the empty line
		}
		below = below[:left]
		if fits := room - left; len(rows) > fits {
			more = len(rows) - (fits - 1)
			rows = rows[:fits-1]
		}
	}

	lines := table(rows, f.rows, width)
	if more > 0 {
		lines = slices.Insert(lines, len(lines)-1, clip(fmt.Sprintf("... and %d more", more), width))
	}
	for _, line := range below {
		lines = append(lines, clip(line, width))
	}
	return lines
}
