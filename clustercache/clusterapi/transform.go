// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"fmt"
	"reflect"
	"regexp"
	goruntime "runtime"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	capi "sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/misfit"
)

// cached is what Cluster API's CacheOptions say about what is cached.
type cached struct {
	transforms map[schema.GroupResource]informerpool.TransformFunc
	limits     limits
	limited    []client.Object // the kinds that have a limit
	// dropManagedFields: the default transform does nothing else, and no kind
	// has another.
	dropManagedFields bool
}

// newCached translates the options. The error is a [*clustercache.OptionError]
// about a field that cannot be followed.
func newCached(scheme *runtime.Scheme, o capi.CacheOptions) (cached, error) {
	out := cached{transforms: map[schema.GroupResource]informerpool.TransformFunc{}, limits: limits{}}
	for object, by := range o.ByObject {
		field := fmt.Sprintf("Cache.ByObject[%T]", object)
		gvk, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return cached{}, &clustercache.OptionError{Field: field, Err: err}
		}
		if by.SyncPeriod != nil {
			return cached{}, &clustercache.OptionError{Field: field + ".SyncPeriod", Err: errUnsupported}
		}
		limit, limited, err := newLimit(field, by)
		if err != nil {
			return cached{}, err
		}
		if limited {
			out.limits[gvk] = limit
			out.limited = append(out.limited, object)
		}
		if by.Transform != nil {
			plural, _ := meta.UnsafeGuessKindToResource(gvk)
			out.transforms[plural.GroupResource()] = transform(scheme, by.Transform)
		}
	}
	switch {
	case o.DefaultTransform == nil:
	case len(out.transforms) == 0 && stripsManagedFields(o.DefaultTransform):
		out.dropManagedFields = true
	default:
		out.transforms[schema.GroupResource{}] = transform(scheme, o.DefaultTransform)
	}

	return out, nil
}

// transform makes a transform of cached objects from one that controller-runtime
// would call. That one gets a typed object where the scheme has the kind, and
// what it changes there is changed in the cached object, whose other fields
// stay: also those that the Go type does not have.
func transform(scheme *runtime.Scheme, change toolscache.TransformFunc) informerpool.TransformFunc {
	if stripsManagedFields(change) {
		return func(u *unstructured.Unstructured) error {
			unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
			return nil
		}
	}
	return func(u *unstructured.Unstructured) error {
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil { // unknown to the scheme
			return transformed(u, change, u)
		}
		object, ok := typed.(client.Object)
		if !ok {
			return transformed(u, change, u)
		}
		convert := runtime.DefaultUnstructuredConverter
		if convert.FromUnstructured(u.Object, object) != nil {
			return misfitOf(u, object)
		}
		before, err := convert.ToUnstructured(object)
		if err != nil {
			return err
		}
		after := &unstructured.Unstructured{}
		if err := transformed(after, change, object); err != nil {
			return err
		}
		apply(u.Object, before, after.Object)

		return nil
	}
}

// misfitOf explains why an object does not fit the Go type without quoting it,
// which the converter's error may do.
func misfitOf(u *unstructured.Unstructured, object client.Object) error {
	document, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("does not fit %T", object)
	}
	return fmt.Errorf("does not fit %T: %s", object, misfit.Find(document, reflect.TypeOf(object)))
}

// strips matches the names of the function that controller-runtime's
// TransformStripManagedFields returns, which begin with the name of the function
// that it is inlined into.
var strips = regexp.MustCompile(`\.TransformStripManagedFields\.func\d+$`)

// stripsManagedFields reports whether a transform is controller-runtime's
// TransformStripManagedFields, which need not see an object.
func stripsManagedFields(change toolscache.TransformFunc) bool {
	f := goruntime.FuncForPC(reflect.ValueOf(change).Pointer())
	return f != nil && strips.MatchString(f.Name())
}

// transformed calls change for an object, and stores the result in u.
func transformed(u *unstructured.Unstructured, change toolscache.TransformFunc, object client.Object) error {
	result, err := change(object)
	if err != nil {
		return err
	}
	u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(result)
	return err
}

// apply makes the changes between two states of an object in a third.
func apply(to, before, after map[string]any) {
	for field := range before {
		if _, stays := after[field]; !stays {
			delete(to, field)
		}
	}
	for field, value := range after {
		was := before[field]
		if reflect.DeepEqual(was, value) {
			continue
		}
		deep, isMap := value.(map[string]any)
		deepWas, wasMap := was.(map[string]any)
		deepTo, toMap := to[field].(map[string]any)
		if isMap && wasMap && toMap {
			apply(deepTo, deepWas, deep)
			continue
		}
		to[field] = value
	}
}
