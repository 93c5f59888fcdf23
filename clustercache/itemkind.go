// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ItemKind returns the kind of the objects of a list: that of the list without
// the suffix List, or, if a typed list is named otherwise, that of its items'
// type.
func (cc *ClusterCache) ItemKind(list client.ObjectList) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(list, cc.options.Scheme)
	if err != nil {
		return gvk, err
	}
	kind, named := strings.CutSuffix(gvk.Kind, listSuffix)
	if named {
		gvk.Kind = kind
		return gvk, nil
	}
	if item, ok := itemOf(list); ok {
		if of, err := apiutil.GVKForObject(item, cc.options.Scheme); err == nil {
			return of, nil
		}
	}
	return gvk, nil
}

// unconventional reports whether a typed list's kind does not say that of its
// items. client-go finds no resource for such a list.
func (cc *ClusterCache) unconventional(list client.ObjectList) bool {
	gvk, err := apiutil.GVKForObject(list, cc.options.Scheme)
	if err != nil || strings.HasSuffix(gvk.Kind, listSuffix) {
		return false
	}
	of, err := cc.ItemKind(list)
	return err == nil && of != gvk
}

// itemOf returns a new object of the type of a typed list's items. Those of
// unstructured lists and lists of metadata do not say their kind.
func itemOf(list client.ObjectList) (runtime.Object, bool) {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, false
	}
	element := reflect.TypeOf(items).Elem().Elem()
	if element.Kind() == reflect.Pointer {
		element = element.Elem()
	}
	return reflect.TypeAssert[runtime.Object](reflect.New(element))
}
