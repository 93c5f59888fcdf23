// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"cmp"
	"errors"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// Selection is what can be wanted of a cluster: all objects of a kind, or those
// of a namespace or with selectors. It is comparable; selectors are in
// canonical form.
type Selection struct {
	GVK schema.GroupVersionKind
	// Namespace is empty for all namespaces.
	Namespace string
	// LabelSelector and FieldSelector are empty if they select everything.
	LabelSelector, FieldSelector string
}

// Fields that every object has.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)

// errSelectsNothing reports a selector that selects nothing. The text of such a
// selector is empty, which would select everything.
var errSelectsNothing = errors.New("selects nothing")

// Select returns the selection of list options. The error is an
// [*informerpool.KeyError]; the selection names the kind in any case.
func Select(gvk schema.GroupVersionKind, o *client.ListOptions) (Selection, error) {
	s := written(gvk, o)
	s.Namespace = o.Namespace
	if field := listopts.Nothing(o); field != "" {
		return s, &informerpool.KeyError{Key: s.key(), Field: field, Err: errSelectsNothing}
	}

	return s.canonical()
}

// written returns the selection of list options by its selectors, as they are
// written.
func written(gvk schema.GroupVersionKind, o *client.ListOptions) Selection {
	s := Selection{GVK: gvk}
	if o.LabelSelector != nil {
		s.LabelSelector = o.LabelSelector.String()
	}
	if o.FieldSelector != nil {
		s.FieldSelector = o.FieldSelector.String()
	}
	return s
}

// key returns a key of the pool with the selection, of a resource that stands
// for the kind, whose resource is not known yet.
func (s Selection) key() informerpool.Key {
	return informerpool.Key{
		Resource:      s.GVK.GroupVersion().WithResource("kind"),
		Namespace:     s.Namespace,
		LabelSelector: s.LabelSelector,
		FieldSelector: s.FieldSelector,
	}
}

// canonical returns the selection with its selectors in canonical form.
func (s Selection) canonical() (Selection, error) {
	key, err := s.key().Canonical()
	if err != nil {
		return s, err
	}
	s.LabelSelector, s.FieldSelector = key.LabelSelector, key.FieldSelector
	return s, nil
}

// asked returns the selection of a list by its selectors, in canonical form,
// like those of wants.
func asked(gvk schema.GroupVersionKind, o *client.ListOptions) Selection {
	s := written(gvk, o)
	if s.LabelSelector+s.FieldSelector != "" {
		s, _ = s.canonical() // as it is written if it is not valid
	}
	return s
}

// Whole reports whether the want's informer has all objects of the kind.
func (w *Want) Whole() bool {
	return (w.Namespace == "" || !w.Namespaced()) && w.LabelSelector == "" && w.FieldSelector == ""
}

// narrowness orders the selections of a kind, the widest first.
func (s Selection) narrowness() int {
	n := 0
	for i, part := range []string{s.Namespace, s.LabelSelector, s.FieldSelector} {
		if part != "" {
			n |= 1 << i
		}
	}
	return n
}

// Compare orders selections by kind, namespace and selectors.
func (s Selection) Compare(other Selection) int {
	return cmp.Or(
		CompareKinds(s.GVK, other.GVK), cmp.Compare(s.Namespace, other.Namespace),
		cmp.Compare(s.LabelSelector, other.LabelSelector), cmp.Compare(s.FieldSelector, other.FieldSelector),
	)
}

// CompareKinds orders kinds by group, version and kind.
func CompareKinds(a, b schema.GroupVersionKind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
}

// KindName returns a kind's name for people.
func KindName(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Version + " " + gvk.Kind
	}
	return gvk.Group + "/" + gvk.Version + " " + gvk.Kind
}

// ObjectName returns the name of an object for logs and errors.
func ObjectName(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// Matches reports whether a requirement accepts the value of its field.
func Matches(r fields.Requirement, value string) bool {
	return (value == r.Value) == (r.Operator != selection.NotEquals)
}
