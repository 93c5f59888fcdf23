// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lag finds wants that are behind: another one, which may have ended, has shown
// a later state of what they select.
type Lag struct {
	config *Config
	index  *Index
}

// ListOutdated returns ErrStale if another want that has all of a list, and can
// select it, has shown a later state of it. Ask before the list.
func (l *Lag) ListOutdated(w *Want, o *client.ListOptions) error {
	list := w.lease.Key()
	asked := asked(w.GVK, o)
	list.Namespace, list.LabelSelector, list.FieldSelector = w.In(o.Namespace), asked.LabelSelector, asked.FieldSelector
	return w.stale(w.lease.ListOutdated(list, l.indexed(w)))
}

// indexed reports whether wants without a field selector answer lists by the
// fields of a want: each is one that every object has, or has an index.
func (l *Lag) indexed(w *Want) bool {
	return !slices.ContainsFunc(w.terms, func(r fields.Requirement) bool {
		return r.Field != FieldName && r.Field != FieldNamespace && !l.config.Indexed(w.GVK, r.Field)
	})
}

// Behind returns ErrStale if no want answers a list of what the want selects,
// since another one, which has ended or answers no more, has shown a later state.
func (l *Lag) Behind(w *Want) error {
	key := w.lease.Key()
	indexed := l.indexed(w)
	why := w.stale(w.lease.ListOutdated(key, indexed))
	if why == nil {
		return nil
	}
	for _, other := range l.index.of(w.GVK).listing(w.scope) {
		if _, is := other.lease.ListOutdated(key, indexed); !is && other != w && l.answers(other) {
			return nil
		}
	}
	l.await(w)
	return why
}

// answers reports whether the informer of a want answers reads that set no
// limits, unless another one has shown more.
func (l *Lag) answers(w *Want) bool {
	return w.lease.ListedIn(l.config.Epoch()) && w.lease.Trust(l.config.StaleAfter) == nil
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
func (l *Lag) follow(w *Want) {
	if l.Behind(w) != nil {
		l.config.OnChanged(w.Selection, true)
	}
}

// await reports to Config.OnChanged that a want that is behind is not any more:
// its informer does not change with that. One goroutine waits for it.
func (l *Lag) await(w *Want) {
	if w.awaited.Swap(true) {
		return
	}
	l.config.Spawn(func() {
		if w.lease.WaitFor(l.config.Context, func() bool { return l.Behind(w) == nil }) != nil {
			return // the want or the set has ended
		}
		w.awaited.Store(false) // before the report, after which Behind may be called again
		l.config.OnChanged(w.Selection, true)
	})
}
