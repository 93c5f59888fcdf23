// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one figure.
type row struct {
	Work    string  `json:"work"`
	Subject string  `json:"subject"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	// Bound is the bound for the value, for example "<= 2"; empty if there is
	// none.
	Bound string `json:"bound,omitempty"`
	// OK reports whether the bound holds.
	OK *bool `json:"ok,omitempty"`
	// Note is why there is no value.
	Note string `json:"note,omitempty"`
}

// bound is a limit for a value.
type bound struct {
	limit float64
	least bool // the limit is a minimum, not a maximum
}

func atMost(limit float64) *bound  { return &bound{limit: limit} }
func atLeast(limit float64) *bound { return &bound{limit: limit, least: true} }

func (b *bound) holds(value float64) bool {
	if b.least {
		return value >= b.limit
	}
	return value <= b.limit
}

func (b *bound) String() string {
	if b.least {
		return ">= " + number(b.limit)
	}
	return "<= " + number(b.limit)
}

// report collects rows in the order in which they will be shown.
type report struct {
	rows []row
	each func(row) // called with each row, if not nil
}

func (r *report) add(work, subject string, value float64, unit string, b *bound) {
	x := row{
		Work:    work,
		Subject: subject,
		Value:   math.Round(value*1e4) / 1e4,
		Unit:    unit,
	}
	if b != nil {
		x.Bound, x.OK = b.String(), new(b.holds(value))
	}
	r.put(x)
}

// note adds a row without a value, for a subject that cannot do the work.
func (r *report) note(work, subject, note string) {
	r.put(row{Work: work, Subject: subject, Note: note})
}

// put adds a row that exists already.
func (r *report) put(x row) {
	r.rows = append(r.rows, x)
	if r.each != nil {
		r.each(x)
	}
}

// broken returns how many bounds do not hold.
func (r *report) broken() int {
	n := 0
	for _, x := range r.rows {
		if x.OK != nil && !*x.OK {
			n++
		}
	}
	return n
}

// table writes one line per work, with one column per subject.
func (r *report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	last := ""
	for _, x := range r.rows {
		if x.Work != last {
			last = x.Work
			_, _ = fmt.Fprintf(t, "\n%s\t[%s]\t\t\n", x.Work, x.Unit)
		}
		if x.Note != "" {
			_, _ = fmt.Fprintf(t, "  %s\t-\t%s\n", x.Subject, x.Note)
			continue
		}
		verdict := ""
		if x.OK != nil {
			verdict = x.Bound + map[bool]string{true: "  ok", false: "  MISSED"}[*x.OK]
		}
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\n", x.Subject, number(x.Value), verdict)
	}

	return t.Flush()
}

func asJSON(w io.Writer) func(row) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(x row) { _ = e.Encode(x) }
}

// number formats a value with at least three digits.
func number(v float64) string {
	digits := 0
	for a := math.Abs(v); a < 100 && digits < 3 && v != math.Trunc(v); a *= 10 {
		digits++
	}
	s := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
