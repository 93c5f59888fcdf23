// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// Kind returns an object that names a kind without its Go type, for parameters
// that take an object.
func Kind(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// isNil reports whether there is no object; a typed nil pointer counts as none.
func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil())
}

// newSelection returns what an object and options select.
func newSelection(scheme *runtime.Scheme, obj client.Object, opts []client.ListOption) (wants.Selection, error) {
	if isNil(obj) {
		return wants.Selection{}, errNilObject
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return wants.Selection{}, err
	}
	o := client.ListOptions{}
	for _, opt := range opts {
		if _, ofRead := opt.(readOption); ofRead {
			return wants.Selection{GVK: gvk}, &OptionError{Field: fmt.Sprintf("%T", opt), Err: errOfReads}
		}
		if opt != nil {
			opt.ApplyToList(&o)
		}
	}
	if o.Limit != 0 || o.Continue != "" {
		return wants.Selection{GVK: gvk}, &OptionError{Field: "Limit", Err: errNoPages}
	}

	if err := listopts.Resolve(&o); err != nil {
		return wants.Selection{GVK: gvk}, err
	}
	id, err := wants.Select(gvk, &o)
	if invalid, ok := errors.AsType[*informerpool.KeyError](err); ok { // whose key names no resource yet
		err = &OptionError{Field: invalid.Field, Err: invalid.Err}
	}

	return id, err
}

var (
	errNilObject = errors.New("obj is nil: an object that names the kind is required")
	errOfReads   = errors.New("is an option of reads, and selects no objects to watch")
	errNoPages   = errors.New("a watch has no pages; it has all objects that it selects")
)

// local reports whether a canonical field selector can be evaluated on any
// object's metadata.
func local(selector string) bool {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}

// keyOf returns the key of a selection in a cluster.
func keyOf(cluster client.ObjectKey, s wants.Selection) status.WatchKey {
	return status.WatchKey{
		Cluster:       cluster,
		GVK:           s.GVK,
		Namespace:     s.Namespace,
		LabelSelector: s.LabelSelector,
		FieldSelector: s.FieldSelector,
	}
}

// selectionOf returns the selection of a key.
func selectionOf(k status.WatchKey) wants.Selection {
	return wants.Selection{
		GVK:           k.GVK,
		Namespace:     k.Namespace,
		LabelSelector: k.LabelSelector,
		FieldSelector: k.FieldSelector,
	}
}

func compareWatchKeys(a, b status.WatchKey) int {
	return cmp.Or(clustername.Compare(a.Cluster, b.Cluster), selectionOf(a).Compare(selectionOf(b)))
}

func sortKeys(keys []status.WatchKey) { slices.SortFunc(keys, compareWatchKeys) }

// except returns the keys that are not among others, without repetitions.
func except(keys, others []status.WatchKey) (out []status.WatchKey) {
	seen := make(map[status.WatchKey]struct{}, len(keys)+len(others))
	for _, key := range others {
		seen[key] = struct{}{}
	}
	for _, key := range keys {
		if _, ok := seen[key]; !ok {
			seen[key] = struct{}{}
			out = append(out, key)
		}
	}
	return out
}
