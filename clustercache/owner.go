// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
)

// Owner identifies what needs a declaration: usually the object that a
// controller reconciles. It is comparable.
type Owner struct {
	// GVK is the kind of the object. Kind and Version are required.
	GVK schema.GroupVersionKind
	// ObjectKey is the object's namespace and name. The name is required.
	client.ObjectKey
	// Controller is the name of the controller that declares, if several do so
	// for the same object: each has a set of its own, and passes its name to
	// controller.EnqueueDeclarer as well. Optional.
	Controller string
}

// check returns an error that names what the owner lacks.
func (o Owner) check() error {
	switch {
	case o.GVK.Kind == "" || o.GVK.Version == "":
		return &OptionError{Field: "owner.GVK", Err: errOwnerKind}
	case o.Name == "":
		return &OptionError{Field: "owner.Name", Err: errNilCallback}
	}
	return nil
}

// OwnerOf returns the owner that stands for an object. scheme maps typed
// objects to their kind. The error is that of an object whose kind is not
// known.
func OwnerOf(obj client.Object, scheme *runtime.Scheme) (Owner, error) {
	if isNil(obj) {
		return Owner{}, errNilObject
	}
	if scheme == nil { // which has no kind of a typed object, and is not needed for others
		scheme = runtime.NewScheme()
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return Owner{}, err
	}
	return Owner{GVK: gvk, ObjectKey: client.ObjectKeyFromObject(obj)}, nil
}

// String returns a short readable form, for logs and errors.
func (o Owner) String() string {
	var parts []string
	if !o.GVK.Empty() {
		parts = append(parts, kindName(o.GVK))
	}
	if o.Name != "" {
		parts = append(parts, objectName(o.ObjectKey))
	}
	if o.Controller != "" {
		parts = append(parts, "("+o.Controller+")")
	}
	return strings.Join(parts, " ")
}

// MarshalLog returns the complete value for a logger, not only the name.
func (o Owner) MarshalLog() any { return o.named() }

// MarshalJSON returns the owner with the field names of a manifest.
func (o Owner) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.named())
}

func (o Owner) named() namedObject {
	version, kind := o.GVK.ToAPIVersionAndKind()
	return namedObject{
		APIVersion: version,
		Kind:       kind,
		Namespace:  o.Namespace,
		Name:       o.Name,
		Controller: o.Controller,
	}
}

// namedObject is the JSON form of an object's name.
type namedObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	Controller string `json:"controller,omitempty"` // of an owner
}

func compareOwners(a, b Owner) int {
	return cmp.Or(
		wants.CompareKinds(a.GVK, b.GVK), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Controller, b.Controller),
	)
}

// OwnerExists returns a liveness query for GC.InUse, which reads the owner's
// metadata from the hub: by the manager's GetAPIReader one small request for
// each owner, by its cache none, but an informer of the kind. An owner that is
// being deleted exists. It panics if hub is nil.
func OwnerExists(hub client.Reader) func(context.Context, Owner) (bool, error) {
	if hub == nil {
		panic("clustercache: OwnerExists: hub is required")
	}
	return func(ctx context.Context, owner Owner) (bool, error) {
		if owner.GVK.Kind == "" || owner.GVK.Version == "" {
			return false, fmt.Errorf("owner %s: %w", owner, errNoKind)
		}
		obj := Kind(owner.GVK)
		err := hub.Get(ctx, owner.ObjectKey, obj)
		if apierrors.IsNotFound(err) && !apistatus.OfGateway(err) {
			return false, nil
		}
		return err == nil, err
	}
}

var (
	errOwnerKind = errors.New("kind and version are required; OwnerOf has those of an object")
	errNoKind    = errors.New("kind and version are needed to look for it")
)
