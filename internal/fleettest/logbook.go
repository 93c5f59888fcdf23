// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// Logbook is a logger that keeps its lines.
type Logbook struct {
	mu    sync.Mutex
	Lines []string
}

// Logger returns a logger that writes to the book.
func (b *Logbook) Logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.Lines = append(b.Lines, prefix+" "+args)
	}, funcr.Options{})
}

// Count returns how many lines contain all of the texts.
func (b *Logbook) Count(texts ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, line := range b.Lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}
