// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// filter selects the objects of a lease that a subscription delivers: those
// that pass the lease's selector and, if any is set, at least one of the
// others.
type filter struct {
	lease selector
	any   []selector
}

// newFilter returns the filter for the objects of a lease that the keys select.
// The error is a *KeyError for a selector that only the server can evaluate.
func newFilter(l *Lease, narrower []Key) (filter, error) {
	key := l.Key()
	s := filter{lease: l.at.Load().selector}
	for _, k := range narrower {
		k.Cluster, k.Resource, k.Kind = key.Cluster, key.Resource, key.Kind
		k, err := k.Canonical()
		if err != nil {
			return s, err
		}
		if k.FieldSelector != key.FieldSelector && !localFields(k.FieldSelector) {
			return s, &KeyError{Key: k, Field: "FieldSelector", Err: errServerOnly}
		}
		f := newSelector(Key{}, k)
		if k.FieldSelector == key.FieldSelector {
			f.fields = nil // the server has evaluated it
		}
		s.any = append(s.any, f)
	}

	return s, nil
}

func (f filter) empty() bool { return f.lease.empty() && len(f.any) == 0 }

// match reports whether an object passes. A nil object does not.
func (f filter) match(o *Object) bool {
	return f.lease.match(o) && (len(f.any) == 0 || slices.ContainsFunc(f.any, func(s selector) bool { return s.match(o) }))
}

// selector narrows the objects of a wider informer down to a key. The zero
// selector passes everything.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// newSelector returns the selector that serves the key narrow from an informer
// for wide. Both keys are canonical.
func newSelector(wide, narrow Key) (s selector) {
	if wide.Namespace != narrow.Namespace {
		s.namespace = narrow.Namespace
	}
	if wide.LabelSelector != narrow.LabelSelector {
		s.labels, _ = labels.Parse(narrow.LabelSelector) // canonical, so it has been parsed before
	}
	if wide.FieldSelector != narrow.FieldSelector {
		s.fields, _ = fields.ParseSelector(narrow.FieldSelector)
	}
	return s
}

// empty reports whether the selector passes everything.
func (s selector) empty() bool { return s.namespace == "" && s.labels == nil && s.fields == nil }

// match reports whether an object passes. A nil object does not.
func (s selector) match(o *Object) bool {
	if o == nil {
		return false
	}
	if s.namespace != "" && o.GetNamespace() != s.namespace {
		return false
	}
	if s.labels != nil && !o.MatchesLabels(s.labels) {
		return false
	}
	return s.fields == nil ||
		s.fields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
}
