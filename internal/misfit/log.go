// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package misfit

import (
	"sync"
	"time"
)

const (
	// maxLines bounds the lines within forgetAfter: a definition that has
	// changed makes every object of a kind a misfit.
	maxLines    = 100
	forgetAfter = time.Hour
)

// Log decides which misfits are logged: an object that does not fit is seen
// again with each of its events, and by each of their handlers. The zero value
// has logged nothing.
type Log struct {
	mu    sync.Mutex // protects the fields below
	lines map[[2]string]struct{}
	since time.Time
}

// First reports whether a cause, which names the object, is to be logged for a
// cluster: it has not been for an hour or so.
func (l *Log) First(cluster string, cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.lines == nil || time.Since(l.since) > forgetAfter {
		l.lines, l.since = map[[2]string]struct{}{}, time.Now()
	}
	line := [2]string{cluster, cause.Error()}
	if _, logged := l.lines[line]; logged || len(l.lines) == maxLines {
		return false
	}
	l.lines[line] = struct{}{}

	return true
}
