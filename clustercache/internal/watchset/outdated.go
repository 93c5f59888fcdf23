// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ListOutdated returns ErrStale if another want, which may have ended, and has
// all of a list and can select it, has shown a later state of it. Ask before the
// list.
func (s *Set) ListOutdated(w *Want, o *client.ListOptions) error {
	list := w.lease.Key()
	asked := w.asked(o)
	list.Namespace, list.LabelSelector, list.FieldSelector = w.In(o.Namespace), asked.LabelSelector, asked.FieldSelector
	return w.stale(w.lease.ListOutdated(list, s.indexed(w)))
}

// indexed reports whether wants without a field selector answer lists by the
// fields of a want: each is one that every object has, or has an index.
func (s *Set) indexed(w *Want) bool {
	return !slices.ContainsFunc(w.terms, func(r fields.Requirement) bool {
		return r.Field != FieldName && r.Field != FieldNamespace && !s.config.Indexed(w.GVK, r.Field)
	})
}

// Behind returns ErrStale if no want answers a list of what the want selects,
// since another one, which has ended or answers no more, has shown a later state.
func (s *Set) Behind(w *Want) error {
	key := w.lease.Key()
	indexed := s.indexed(w)
	why := w.stale(w.lease.ListOutdated(key, indexed))
	if why == nil {
		return nil
	}
	for _, other := range s.index.of(w.GVK).listing(w.scope) {
		if _, is := other.lease.ListOutdated(key, indexed); !is && other != w && s.answers(other) {
			return nil
		}
	}
	s.await(w)
	return why
}

func (w *Want) stale(shown string, is bool) error {
	switch {
	case !is:
		return nil
	case shown == "":
		return fmt.Errorf("%w: another watch shows a later history", ErrStale)
	}
	return fmt.Errorf("%w: at resourceVersion %s; another watch showed %s", ErrStale, w.lease.ResourceVersion(), shown)
}

// follow reports to Config.OnChanged that a want is behind.
func (s *Set) follow(w *Want) {
	if s.Behind(w) != nil {
		s.config.OnChanged(w.Selection, true)
	}
}

// await reports to Config.OnChanged that a want that is behind is not any more:
// its informer does not change with that. One goroutine waits for it.
func (s *Set) await(w *Want) {
	if w.awaited.Swap(true) {
		return
	}
	s.config.Spawn(func() {
		if w.lease.WaitFor(s.config.Context, func() bool { return s.Behind(w) == nil }) != nil {
			return // the want or the set has ended
		}
		w.awaited.Store(false) // before the report, after which Behind may be called again
		s.config.OnChanged(w.Selection, true)
	})
}
