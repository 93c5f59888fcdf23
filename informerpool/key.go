// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// Key identifies what one informer watches: one resource of one cluster, in all
// namespaces or in one, narrowed by selectors. Keys are comparable;
// [Key.Canonical] makes keys equal whose selectors mean the same. A key names a
// resource, not a kind, so that typed, unstructured and metadata-only readers
// of one kind share one informer.
type Key struct {
	// Cluster names the remote cluster. The zero value is the hub itself.
	Cluster types.NamespacedName
	// Resource is the watched resource. Version and resource are required.
	Resource schema.GroupVersionResource
	// Kind is the kind that the resource is expected to have; a response of
	// another kind is refused. If empty, it is the kind that the source knows
	// (see [KindSource]), or else the kind of the server's lists. Keys with
	// different kinds are different informers, so either all users of a pool
	// should set Kind, or none.
	Kind string
	// Namespace restricts the informer to one namespace. Empty means all
	// namespaces; leave it empty for cluster-scoped resources.
	Namespace string
	// LabelSelector is evaluated by the server; empty selects everything.
	LabelSelector string
	// FieldSelector is evaluated by the server; empty selects everything.
	FieldSelector string
}

// String returns a short readable form for logs and errors.
func (k Key) String() string {
	var s strings.Builder
	s.WriteString(clustername.Of(k.Cluster) + " " + k.Resource.Resource + "." + k.Resource.Version)
	for _, part := range [...]struct{ before, value string }{
		{".", k.Resource.Group}, {" in ", k.Namespace}, {" labels ", k.LabelSelector}, {" fields ", k.FieldSelector},
	} {
		if part.value != "" {
			s.WriteString(part.before + part.value)
		}
	}
	return s.String()
}

// Canonical validates the key and returns it with its selectors in canonical
// form, so that keys that mean the same are equal. It does no I/O. The error is
// a [*KeyError] that names the field.
func (k Key) Canonical() (Key, error) {
	for _, f := range []struct{ name, value string }{
		{"Resource.Version", k.Resource.Version}, {"Resource.Resource", k.Resource.Resource},
	} {
		if f.value == "" {
			return k, &KeyError{Key: k, Field: f.name, Err: errRequired}
		}
	}

	for _, f := range []struct{ name, value string }{
		{"Resource.Group", k.Resource.Group}, {"Resource.Version", k.Resource.Version},
		{"Resource.Resource", k.Resource.Resource}, {"Kind", k.Kind}, {"Namespace", k.Namespace},
	} {
		// Each of these becomes a segment of the request path.
		if msgs := content.IsPathSegmentName(f.value); len(msgs) > 0 {
			return k, &KeyError{Key: k, Field: f.name, Err: fmt.Errorf("%q %s", f.value, strings.Join(msgs, "; "))}
		}
	}

	requirements, err := selector.Labels(k.LabelSelector)
	if err != nil {
		return k, &KeyError{Key: k, Field: "LabelSelector", Err: err}
	}
	terms, err := selector.Fields(k.FieldSelector)
	if err != nil {
		return k, &KeyError{Key: k, Field: "FieldSelector", Err: err}
	}
	k.LabelSelector = requirements
	k.FieldSelector = terms

	return k, nil
}

// wider returns the keys whose informers hold everything that k selects,
// narrowest first, without k itself.
func (k Key) wider() []Key {
	var out []Key
	either := func(s string) []string { return slices.Compact([]string{s, ""}) }
	for _, fields := range either(k.FieldSelector) {
		if fields != k.FieldSelector && !selector.Local(k.FieldSelector) {
			continue // only the server can evaluate it: the objects of a wider store could not be filtered
		}
		for _, labels := range either(k.LabelSelector) {
			for _, namespace := range either(k.Namespace) {
				w := k
				w.Namespace, w.LabelSelector, w.FieldSelector = namespace, labels, fields
				if w != k {
					out = append(out, w)
				}
			}
		}
	}

	return out
}

// mayList reports whether a list of the key may have an object: informers
// refuse others.
func (k Key) mayList(it wire.Item) bool {
	return (wire.Expect{Namespace: k.Namespace}).Check(it) == nil
}

// newSelector returns the selector that serves the key narrow from an informer
// for wide. Both keys are canonical.
func newSelector(wide, narrow Key) (s selector.Selector) {
	if wide.Namespace != narrow.Namespace {
		s.Namespace = narrow.Namespace
	}
	if wide.LabelSelector != narrow.LabelSelector {
		s.Labels, _ = labels.Parse(narrow.LabelSelector) // it has been parsed before
	}
	if wide.FieldSelector != narrow.FieldSelector {
		s.Fields, _ = fields.ParseSelector(narrow.FieldSelector)
	}
	return s
}

// compareKeys orders keys by cluster, resource and selection.
func compareKeys(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Cluster.Namespace, b.Cluster.Namespace), cmp.Compare(a.Cluster.Name, b.Cluster.Name),
		cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource),
		cmp.Compare(a.Resource.Version, b.Resource.Version), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.LabelSelector, b.LabelSelector), cmp.Compare(a.FieldSelector, b.FieldSelector),
	)
}

// KeyError describes an invalid field of a key.
type KeyError struct {
	Key   Key
	Field string
	Err   error
}

// Error implements error.
func (e *KeyError) Error() string { return fmt.Sprintf("informer %s: %s: %v", e.Key, e.Field, e.Err) }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// refusedError is the error of an object of a key, or of all of them, that was
// refused.
func refusedError(key Key, why error) error {
	if errors.Is(why, ErrRefused) {
		return fmt.Errorf("%s: %w", key, why)
	}
	return fmt.Errorf("%s: %w: %w", key, ErrRefused, why)
}
