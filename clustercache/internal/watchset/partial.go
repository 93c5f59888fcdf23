// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"slices"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// A kind may have hundreds of wants that select by labels or fields. Any of them
// may have an object that a Get names, and none knows that it does not exist. So
// a Get looks at them only if no other want answers it, or if they have come
// further than the others.

// mark is how far wants have come that need not exist any more.
type mark struct {
	p atomic.Pointer[informerpool.Position]
}

// raise records that a want has come as far as a position.
func (m *mark) raise(to informerpool.Position) {
	for to.Synced {
		before := m.p.Load()
		reached := before != nil && sameHistory(*before, to) && !later(to.Shown, before.Shown)
		if reached || m.p.CompareAndSwap(before, &to) {
			return
		}
	}
}

// beyond reports whether the mark is beyond a want.
func (m *mark) beyond(w *Want) (shown string, is bool) {
	p := m.p.Load()
	if p == nil {
		return "", false
	}
	at := w.lease.Position()
	return p.Shown, sameHistory(*p, at) && later(p.Shown, at.ResourceVersion)
}

// Partial adds the readable partial wants that may have an object to those that
// cover it, unless they need not be looked at. With always, it adds them in any
// case.
func (s *Set) Partial(to Candidates, gvk schema.GroupVersionKind, namespace string, always bool) Candidates {
	k := s.index.of(gvk)
	if !always && !slices.ContainsFunc(to, Candidate.behindParts) {
		return to
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.partial) == 0 {
		return to
	}
	for namespace := range k.wider(namespace) {
		for w := range k.partial[namespace] {
			to = append(to, Candidate{Want: w})
		}
	}
	return to
}

// behindParts reports whether partial wants may be ahead of the candidate.
func (c Candidate) behindParts() bool {
	reached := c.lease.PartsReached()
	if reached == 0 {
		return false
	}
	at, err := strconv.ParseUint(c.lease.ResourceVersion(), 10, 64)
	return err != nil || at < reached
}

// Lacks returns ErrStale if a want may lack what one that has ended had shown of
// an object.
func (s *Set) Lacks(w *Want) error {
	k := s.index.of(w.GVK)
	m := &k.answered
	switch {
	case !w.decides():
		m = &k.ended
	case w.scope.name == "":
		return nil // it has a debt instead
	}
	if shown, is := m.beyond(w); is {
		return staleAt(w.lease.Position(), shown)
	}
	return nil
}

// Answered records that a want has answered a read with objects: partial wants
// that lag behind, and select them, will notify their handlers of their
// deletion.
func (s *Set) Answered(by *Want, objects ...*informerpool.Object) {
	k := s.index.of(by.GVK)
	if !by.decides() {
		by.answered.Store(true)
	}
	k.mu.RLock()
	none := len(k.partial) == 0
	k.mu.RUnlock()
	if none || len(objects) == 0 {
		return
	}
	own := Candidate{Want: by, at: by.lease.Position()}
	others := map[*Want]Candidate{}
	for _, o := range objects {
		for _, w := range s.Selecting(by.GVK, client.ObjectKeyFromObject(o), LabelsOf{o}) {
			if w.decides() {
				continue
			}
			c, known := others[w]
			if !known {
				c = Candidate{Want: w, at: w.lease.Position()}
				others[w] = c
			}
			c.saw(own, []*informerpool.Object{o})
		}
	}
}

// endLocked records how far a want has come that ends.
func (k *kind) endLocked(w *Want) {
	if w.lease == nil || w.decides() && w.scope.name == "" {
		return
	}
	at := w.lease.Position()
	k.ended.raise(at)
	if w.answered.Load() {
		k.answered.raise(at)
	}
}
