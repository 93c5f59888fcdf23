// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// servePatch patches an object. An apply to an object that does not exist
// creates it.
func (op *writing) servePatch() (*version, error) {
	body, media, err := op.readBody()
	if err != nil {
		return nil, err
	}
	op.mu.Lock()
	defer op.mu.Unlock()

	old := op.table.objects[objectKey{op.req.Namespace, op.req.Name}]
	if types.PatchType(media) == types.ApplyPatchType {
		return op.apply(body, old)
	}
	if old == nil {
		return nil, apierrors.NewNotFound(op.req.GroupResource(), op.req.Name)
	}
	patched, err := op.patch(old, types.PatchType(media), body)
	if err != nil {
		return nil, err
	}
	return op.updatePatched(old, patched)
}

// updatePatched stores the result of a patch.
func (op *writing) updatePatched(old *version, patched []byte) (*version, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(patched); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u, err := fit(u, op.table.kind)
	if err != nil {
		return nil, err
	}
	if err := op.place(u); err != nil {
		return nil, err
	}
	return op.update(old, u)
}

// patch returns the object with the patch applied.
func (op *writing) patch(old *version, kind types.PatchType, body []byte) ([]byte, error) {
	before := old.in(op.apiVersion())
	switch kind {
	case types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		after, err := p.Apply(before)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", op.req.GroupResource(),
				op.req.Name, err.Error(), 0, false)
		}
		return after, nil
	case types.MergePatchType:
		after, err := jsonpatch.MergePatch(before, body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, nil
	case types.StrategicMergePatchType:
		if !op.table.kind.builtIn {
			return nil, unsupportedMedia(string(kind))
		}
		typed, err := scheme.Scheme.New(op.table.kind.gvk(op.req.Version))
		if err != nil {
			return nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, body, typed)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, nil
	}

	return nil, unsupportedMedia(string(kind))
}

// decodeApply decodes an apply configuration.
func (op *writing) decodeApply(body []byte) (*unstructured.Unstructured, error) {
	raw, err := toJSON(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if u.GetAPIVersion() != op.apiVersion() || u.GetKind() != op.table.kind.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is of %s %s, the path of %s %s",
			u.GetAPIVersion(), u.GetKind(), op.apiVersion(), op.table.kind.Kind))
	}
	if u.GetName() == "" {
		u.SetName(op.req.Name)
	}

	return u, op.place(u)
}
