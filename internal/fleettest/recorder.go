// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"sync"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Recorder is a handler that records its events.
type Recorder struct {
	mu     sync.Mutex
	events []string
}

// Handle implements informerpool.Handler.
func (h *Recorder) Handle(e informerpool.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, string(e.Type)+" "+e.Object().GetName())
}

// Take returns the events since the last call.
func (h *Recorder) Take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}
