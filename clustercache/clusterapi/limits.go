// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// limit is the part of a kind that Cluster API's options would cache. Kinds
// with a limit are not cached: the API server answers within the limit.
type limit struct {
	namespace string          // empty: all
	labels    labels.Selector // nil: all
}

// limits are those of the kinds that have one.
type limits map[schema.GroupVersionKind]limit

var (
	errNamespaces  = errors.New("must not have more than one namespace, which must have a name")
	errUnsupported = errors.New("is not supported")
	errLimited     = errors.New("Cache.ByObject limits the kind, which is not watched")
)

// newLimit returns the limit of a kind, and whether it has one. The error is a
// [*clustercache.OptionError].
func newLimit(field string, by cache.ByObject) (limit, bool, error) {
	l := limit{labels: by.Label}
	fieldSelector := by.Field
	if len(by.Namespaces) > 1 {
		return l, false, &clustercache.OptionError{Field: field + ".Namespaces", Err: errNamespaces}
	}
	for namespace, config := range by.Namespaces {
		if namespace == cache.AllNamespaces {
			return l, false, &clustercache.OptionError{Field: field + ".Namespaces", Err: errNamespaces}
		}
		l.namespace = namespace
		if config.LabelSelector != nil {
			l.labels = config.LabelSelector
		}
		if config.FieldSelector != nil {
			fieldSelector = config.FieldSelector
		}
	}

	if fieldSelector != nil && !fieldSelector.Empty() {
		return l, false, &clustercache.OptionError{Field: field + ".Field", Err: errUnsupported}
	}
	return l, l.namespace != "" || l.labels != nil, nil
}

// has reports whether the limit includes an object.
func (l limit) has(object client.Object) bool {
	return (l.namespace == "" || l.namespace == object.GetNamespace()) &&
		(l.labels == nil || l.labels.Matches(labels.Set(object.GetLabels())))
}

// limitedClient reads kinds with a limit within it.
type limitedClient struct {
	client.Client

	limits limits
}

// Get implements client.Reader. An object that the limit leaves out is not
// found.
func (c limitedClient) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	if l, limited := c.limits[gvk]; limited && !l.has(object) {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		return apierrors.NewNotFound(plural.GroupResource(), key.Name)
	}
	return nil
}

// List implements client.Reader.
func (c limitedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	l, limited := c.limits[gvk]
	if !limited {
		return c.Client.List(ctx, list, opts...)
	}

	o := (&client.ListOptions{}).ApplyOptions(opts)
	if err := listopts.Resolve(o); err != nil {
		return err
	}
	if l.namespace != "" && o.Namespace != "" && o.Namespace != l.namespace {
		return listopts.Empty(list)
	}
	if l.namespace != "" {
		o.Namespace = l.namespace
	}
	if l.labels != nil {
		o.LabelSelector = both(l.labels, o.LabelSelector)
	}
	return c.Client.List(ctx, list, o)
}

// both returns a selector of what two select, of which the second may be nil.
func both(a, b labels.Selector) labels.Selector {
	if b == nil {
		return a
	}
	requirements, selectable := b.Requirements()
	if !selectable {
		return labels.Nothing()
	}
	return a.DeepCopySelector().Add(requirements...)
}

// limited returns an error for a kind that has a limit: an informer would not
// keep to it.
func (c *ClusterCache) limited(object client.Object) error {
	if len(c.limits) == 0 {
		return nil
	}
	gvk, err := apiutil.GVKForObject(object, c.cc.Options().Scheme)
	if err != nil {
		return err
	}
	if _, limited := c.limits[gvk]; limited {
		return errLimited
	}
	return nil
}
