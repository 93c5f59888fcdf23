// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package selector selects objects by their namespace, labels and fields.
//
// # Tests
//
// The leading test is TestSelectorsThatMeanTheSameAreEqual.
// TestFilterSelectsWhatTheLeaseAndAnyOfTheOthersDo covers filters.
package selector

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// Selector selects objects by their metadata. The zero Selector
// passes everything.
type Selector struct {
	Namespace string
	Labels    labels.Selector
	Fields    fields.Selector
}

// Name returns the name of the objects that the selector selects, if all have
// the same.
func (s Selector) Name() (name string, one bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch("metadata.name")
}

// Match reports whether an object passes. A nil object does not.
func (s Selector) Match(o *packed.Object) bool {
	if o == nil {
		return false
	}
	if s.Namespace != "" && o.GetNamespace() != s.Namespace {
		return false
	}
	if s.Labels != nil && !o.MatchesLabels(s.Labels) {
		return false
	}
	return s.Fields == nil ||
		s.Fields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
}

// Meets is Match, but an object without a namespace is in every one: an API
// server ignores the namespace of a request for a kind that has none.
func (s Selector) Meets(o *packed.Object) bool {
	if o != nil && o.GetNamespace() == "" {
		s.Namespace = ""
	}
	return s.Match(o)
}

// Filter selects the objects of a lease that a subscription delivers: those
// that pass the lease's selector and, if any is set, at least one of the
// others.
type Filter struct {
	Lease Selector
	Any   []Selector
}

// Match reports whether an object passes. A nil object does not.
func (f Filter) Match(o *packed.Object) bool {
	return f.Lease.Match(o) &&
		(len(f.Any) == 0 || slices.ContainsFunc(f.Any, func(s Selector) bool { return s.Meets(o) }))
}
