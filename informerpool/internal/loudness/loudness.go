// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package loudness decides which log lines the informers of a cluster may
// write, so that no server can fill the log.
//
// # Tests
//
// The leading test is TestHazardSteadyOddityFillsTheLog.
// TestMadeUpCausesTakeNoMemory covers memory.
package loudness

import (
	"strings"
	"time"
	"unicode"
)

const (
	// burst is how many lines of one cause may follow one another, and refill
	// the time after which there may be one more: a steady oddity has at most
	// burst + 1h/refill lines in its first hour, and then half of that.
	burst  = 3
	refill = 30 * time.Minute
	// maxCauses bounds the number of causes that are remembered: more in a
	// short time are a flood.
	maxCauses = 8
	// maxCause is how much of a cause is compared.
	maxCause = 200
)

// Lines are the lines that were written. The zero value has none.
type Lines struct {
	of map[string]written
}

// written is how many lines of a cause were written lately, as of a time.
type written struct {
	lines int
	at    time.Time
}

// Allow reports whether a line about a cause may be written, and counts it.
// Causes that differ in numbers alone are the same one: versions, times and
// ports change with each attempt.
func (l *Lines) Allow(cause string, now time.Time) bool {
	cause = kind(cause)
	w, known := l.of[cause]
	w = w.asOf(now)
	if w.lines >= burst || !known && !l.room(now) {
		return false
	}
	if w.lines++; l.of == nil {
		l.of = map[string]written{}
	}
	l.of[cause] = w

	return true
}

// room reports whether a further cause can be remembered.
func (l *Lines) room(now time.Time) bool {
	for cause, w := range l.of {
		if w.asOf(now).lines == 0 {
			delete(l.of, cause)
		}
	}
	return len(l.of) < maxCauses
}

// asOf returns what still counts at a time.
func (w written) asOf(now time.Time) written {
	if w.lines == 0 {
		return written{at: now}
	}
	over := int(now.Sub(w.at) / refill)
	if over >= w.lines {
		return written{at: now}
	}
	return written{lines: w.lines - over, at: w.at.Add(time.Duration(over) * refill)}
}

// kind returns a cause without its numbers.
func kind(cause string) string {
	cause = cause[:min(len(cause), maxCause)]
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, cause)
}
