// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// typeConverters define how fields merge: for built-in kinds by schema, for all
// others by structure, with lists merged as a whole.
var (
	builtInTypes = sync.OnceValue(func() managedfields.TypeConverter {
		return applyconfigurations.NewTypeConverter(scheme.Scheme)
	})
	otherTypes = sync.OnceValue(managedfields.NewDeducedTypeConverter)
)

// apply implements server-side apply. In this server only applied objects have
// managed fields, beginning with their first apply.
func (op *writing) apply(body []byte, old *version) (*version, error) {
	manager := op.q.Get("fieldManager")
	if manager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	config, err := op.decodeApply(body)
	if err != nil {
		return nil, err
	}
	gvk := op.table.kind.gvk(op.req.Version)
	live := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	if old != nil {
		live = old.copy()
	}
	live.SetGroupVersionKind(gvk)
	fields, err := op.fieldManager(gvk)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	object, err := op.typed(live)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	applied, err := fields.Apply(object, config, manager, op.q.Get("force") == "true")
	if err != nil {
		return nil, err
	}
	result := &unstructured.Unstructured{}
	if result.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(applied); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	result.SetGroupVersionKind(gvk)
	result.SetName(op.req.Name)
	if result, err = fit(result, op.table.kind); err != nil {
		return nil, err
	}
	if old == nil {
		if op.req.Subresource != "" {
			return nil, apierrors.NewNotFound(op.req.GroupResource(), op.req.Name)
		}
		op.code = http.StatusCreated
		return op.create(result)
	}

	return op.update(old, result)
}

func (op *writing) fieldManager(gvk schema.GroupVersionKind) (*managedfields.FieldManager, error) {
	if op.table.kind.builtIn {
		return managedfields.NewDefaultFieldManager(builtInTypes(), scheme.Scheme, noDefaults{}, scheme.Scheme,
			gvk, gvk.GroupVersion(), op.req.Subresource, nil)
	}
	return managedfields.NewDefaultCRDFieldManager(otherTypes(), sameVersion{}, noDefaults{}, newUnstructured{},
		gvk, gvk.GroupVersion(), op.req.Subresource, nil)
}

// typed returns an object of a built-in kind as its Go type.
func (op *writing) typed(u *unstructured.Unstructured) (runtime.Object, error) {
	if !op.table.kind.builtIn {
		return u, nil
	}
	out, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(u.GroupVersionKind())

	return out, nil
}

// noDefaults implements runtime.ObjectDefaulter.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// newUnstructured implements runtime.ObjectCreater.
type newUnstructured struct{}

func (newUnstructured) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// sameVersion implements runtime.ObjectConvertor for kinds whose versions
// differ only in name.
type sameVersion struct{}

func (sameVersion) Convert(_, _, _ any) error { return nil }

func (sameVersion) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	gvk := in.GetObjectKind().GroupVersionKind()
	if target, ok := gv.KindForGroupVersionKinds([]schema.GroupVersionKind{gvk}); ok {
		in = in.DeepCopyObject()
		in.GetObjectKind().SetGroupVersionKind(target)
	}
	return in, nil
}

func (sameVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
