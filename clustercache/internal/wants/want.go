// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// Want is a reference-counted request to watch one selection. All holders share
// one lease, which the want gets once its kind is mapped to a resource:
//
//	add ──► waiting ───► bound to a lease ──► parted: no reference is left
//	         ▲   │         ▲          │
//	         └───┘         └──────────┘
//	   kind not found:   rebind: the kind is
//	   RetryInterval     served differently
type Want struct {
	Selection

	kind   *kind // those of the same one
	scope  scope
	traits []trait              // at least one, the sharpest first
	labels labels.Selector      // nil: all
	terms  []fields.Requirement // of the field selector

	// mapping is how the kind is served; set before the lease.
	mapping atomic.Pointer[restmap.Mapping]
	missing atomic.Bool // its kind was not served when discovery was last read for the set
	awaited atomic.Bool // a goroutine waits until it is not behind any more

	trust struct { // an informer and timers are locked under it
		sync.Mutex

		expired bool // its informer was found not to be trusted for the sake of time
	}

	// The rest is protected by the lock of the set.
	refs    int
	auto    bool                                     // one of the refs belongs to reads in mode AutoWatch
	used    time.Time                                // when such a read last used it
	lease   *informerpool.Lease                      // nil until the kind is mapped; never changes after that
	key     informerpool.Key                         // of the lease, as the index has it
	err     error                                    // why there is no lease
	changed chan struct{}                            // closed when lease or err change
	waiting []*informerpool.Subscription             // to be added to the lease
	unsent  map[types.UID]*unstructured.Unstructured // seen in reads, for the lease
}

func newWant(id Selection) *Want {
	w := &Want{Selection: id, changed: make(chan struct{})}
	w.scope, w.traits = scopeOf(id)
	if selector, err := labels.Parse(id.LabelSelector); err == nil && id.LabelSelector != "" {
		w.labels = selector
	}
	if selector, err := fields.ParseSelector(id.FieldSelector); err == nil {
		w.terms = selector.Requirements()
	}
	return w
}

// Lease returns the want's lease. Only wants that Of, Readable or Late have
// returned, or that OnBound was called with, have one.
func (w *Want) Lease() *informerpool.Lease { return w.lease }

// Mapping returns how the kind is served; nil if that is not known.
func (w *Want) Mapping() *restmap.Mapping { return w.mapping.Load() }

// Explain returns what an error of the want's informer means. If the resource is
// presumed, that the server does not know it is no proof that it does not serve
// the kind.
func (w *Want) Explain(err error) error {
	m := w.mapping.Load()
	if m == nil || !m.Presumed || w.missing.Load() || !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("%w, and not as presumed: %s", restmap.ErrUnavailable, err.Error())
}

// Namespaced reports whether the objects live in namespaces, as far as is
// known. The cached objects decide over what discovery returned some time ago.
func (w *Want) Namespaced() bool {
	_, shown := w.Scopes()
	return shown
}

// Scopes reports whether the objects live in namespaces: by discovery, and by
// the cached objects. Without any, shown is mapped.
func (w *Want) Scopes() (mapped, shown bool) {
	m := w.mapping.Load()
	mapped = m == nil || m.Namespaced
	if w.lease != nil {
		if namespaced, known := w.lease.Namespaced(); known {
			return mapped, namespaced
		}
	}
	return mapped, mapped
}

// In returns the namespace to look in where a read names one. The API
// server and controller-runtime ignore the namespace of a cluster-scoped
// object.
func (w *Want) In(asked string) string {
	if w.Namespaced() {
		return asked
	}
	return ""
}

// Position returns the position of the want's informer.
func (w *Want) Position() informerpool.Position { return w.lease.Position() }

// Find returns an object of the want's informer.
func (w *Want) Find(namespace, name string) (*informerpool.Object, error) {
	return w.lease.Get(namespace, name)
}

// MaySelect reports whether the want may select an object of this name and
// these labels. Of fields, only name and namespace are known.
func (w *Want) MaySelect(key client.ObjectKey, has map[string]string) bool {
	return w.maySelect(key, labels.Set(has))
}

func (w *Want) maySelect(key client.ObjectKey, has labels.Labels) bool {
	return (!apart(w.Namespace, key.Namespace) || !w.Namespaced()) &&
		(w.labels == nil || w.labels.Matches(has)) && w.mayBeNamed(key.Namespace, key.Name)
}

// mayBeNamed reports whether a want may select an object by its fields. It
// evaluates only name and namespace, which every object has.
func (w *Want) mayBeNamed(namespace, name string) bool {
	return !slices.ContainsFunc(w.terms, func(r fields.Requirement) bool {
		return r.Field == FieldName && !Matches(r, name) || r.Field == FieldNamespace && !Matches(r, namespace)
	})
}

func (w *Want) broadcast() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Polled reports whether the kind can only be listed, by discovery or by what
// the server does. A cached answer is then as old as the last poll.
func (w *Want) Polled() bool {
	m := w.mapping.Load()
	return m != nil && !m.Can(restmap.Watch) || w.lease.Polls()
}
