// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Recorder is a handler that records its events and checks each object's
// history.
type Recorder struct {
	Mu      sync.Mutex // protects the fields below
	events  []string
	Objects map[string]*informerpool.Object
	Wrong   []string
	Before  func(informerpool.Event)
	Epochs  bool // versions may go back, as in a new epoch
}

// NewRecorder returns a recorder without events.
func NewRecorder() *Recorder { return &Recorder{Objects: map[string]*informerpool.Object{}} }

// Handle implements informerpool.Handler.
func (r *Recorder) Handle(e informerpool.Event) {
	if r.Before != nil {
		r.Before(e)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	o := e.Object()
	name := o.GetNamespace() + "/" + o.GetName()
	text := fmt.Sprintf("%s %s@%s", e.Type, name, o.GetResourceVersion())
	r.events = append(r.events, text)
	known := r.Objects[name]
	switch e.Type {
	case informerpool.Added:
		if known != nil {
			r.Wrong = append(r.Wrong, text+": known already")
		}
		r.Objects[name] = e.New
	case informerpool.Updated:
		switch {
		case known == nil:
			r.Wrong = append(r.Wrong, text+": not known")
		case known != e.Old:
			r.Wrong = append(r.Wrong, text+": old is not the last state delivered: "+e.Old.GetResourceVersion()+
				" after "+known.GetResourceVersion())
		case !e.Resync && !r.Epochs && !later(e.New, known):
			r.Wrong = append(r.Wrong, text+": not later than "+known.GetResourceVersion())
		}
		r.Objects[name] = e.New
	case informerpool.Deleted:
		last := e.LastDelivered
		if last == nil {
			last = e.Old
		}
		switch {
		case known == nil:
			r.Wrong = append(r.Wrong, text+": not known")
		case known.GetUID() != o.GetUID():
			r.Wrong = append(r.Wrong, text+": deletes another object")
		case known != last:
			r.Wrong = append(r.Wrong, text+": LastDelivered is not the last state delivered")
		}
		delete(r.Objects, name)
	}
}

func later(a, b *informerpool.Object) bool {
	va, _ := a.Version()
	vb, _ := b.Version()
	return va > vb
}

// Take returns the events since the last call.
func (r *Recorder) Take() []string {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// State is the state that the events add up to.
func (r *Recorder) State() map[string]string {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	out := map[string]string{}
	for name, o := range r.Objects {
		out[name] = fmt.Sprintf("%s@%s", o.GetUID(), o.GetResourceVersion())
	}
	return out
}

// Count is the number of events since the last take.
func (r *Recorder) Count() int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return len(r.events)
}

// RequireSound fails the test if an event contradicted the ones before it.
func (r *Recorder) RequireSound(t *testing.T) {
	t.Helper()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	require.Empty(t, r.Wrong)
}
