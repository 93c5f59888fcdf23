// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/transport"
)

const kindStatus = "Status"

// isStatus reports whether a document is a Status of Kubernetes. Custom
// resources may have a kind of that name.
func isStatus(apiVersion, kind string) bool {
	return kind == kindStatus && (apiVersion == "" || apiVersion == "v1")
}

var (
	errNoObject = fmt.Errorf("%w: no kind, %w", ErrAnswer, transport.ErrNotKubernetes)
	errNoName   = fmt.Errorf("%w: an object without a name, %w", ErrAnswer, transport.ErrNotKubernetes)
	errAnother  = fmt.Errorf("%w: it is another object's", ErrAnswer)
)

// whose identifies the object that an answer must contain.
type whose struct {
	client.ObjectKey // what is empty may be any

	mayBeNameless bool
}

// whoseIs returns the object that the answer to a write of obj must contain:
// the one with the name that was sent, or with a name that the server chose.
// Some kinds, such as reviews, never have a name.
func whoseIs(obj any) *whose {
	if absent(obj) {
		return nil
	}
	switch o := obj.(type) {
	case client.Object:
		return &whose{ObjectKey: keyOf(o), mayBeNameless: o.GetName() == "" && o.GetGenerateName() == ""}
	case applied:
		return &whose{ObjectKey: keyOf(o)}
	}

	return nil
}

// applied is an apply configuration that has a kind and a name.
type applied interface {
	GetName() *string
	GetNamespace() *string
	GetKind() *string
	GetAPIVersion() *string
}

// checkObject returns an error if a document is not an object that may be the
// answer. None of it has been decoded yet: the answer to a write is decoded
// into the object that the caller sent.
func (c *callState) checkObject(m *meter.Meter) error {
	apiVersion, kind := m.TypeMeta()
	if err := c.check(apiVersion, kind); err != nil {
		return err
	}
	if c.whose == nil || isStatus(apiVersion, kind) && (c.want.Empty() || slices.Contains(c.also, kind)) {
		return nil
	}

	switch namespace, name := m.Named(); {
	case name == "" && kind == "":
		return errNoObject
	case name == "" && !c.whose.mayBeNameless:
		return errNoName
	case differs(name, c.whose.Name), differs(namespace, c.whose.Namespace):
		return errAnother
	}

	return nil
}

// differs reports whether a name is present and is not the expected one.
func differs(name, expected string) bool { return name != "" && expected != "" && name != expected }

// written returns a call that writes obj, whose answer is decoded into it.
func (l *bounded) written(obj any) *callState {
	c := l.answer(obj)
	c.write, c.whose = true, whoseIs(obj)
	if c.want.Kind == "Binding" {
		c.also = []string{kindStatus}
	}
	return c
}

// created is written for an object to create.
func (l *bounded) created(obj client.Object) *callState {
	c := l.written(obj)
	c.creates = true
	return c
}

// isMadeOf reports whether an answer of an API version may be what a server
// creates from an object of another kind, as OpenShift creates a Project from a
// ProjectRequest. Kubernetes' own groups have no such kinds.
func (c *callState) isMadeOf(apiVersion string) bool {
	return isVersion(apiVersion, c.want) && apiVersion != "" && !restmap.BuiltIn(c.want.Group)
}

// deleted is written for a delete, which the server answers with the deleted
// object or a status. The answer is not decoded.
func (l *bounded) deleted(obj client.Object) *callState {
	c := l.written(obj)
	c.into, c.deletes, c.also = nil, true, []string{kindStatus}
	return c
}

// deletedAll is deleted for many objects; a server may answer with a list of
// them.
func (l *bounded) deletedAll(obj client.Object) *callState {
	c := l.deleted(obj)
	c.whose = nil
	c.also = append(c.also, "PartialObjectMetadataList")
	if c.want.Kind != "" {
		c.want.Kind += listSuffix
	}
	return c
}

// ownSubresources are those of Kubernetes that answer with the kind that was
// sent, or with the kinds listed here. Those of other groups may answer with
// anything, such as an object that they created.
var ownSubresources = map[string][]string{
	"approval":            nil,
	"binding":             {kindStatus},
	"ephemeralcontainers": nil,
	"eviction":            {kindStatus},
	"finalize":            nil,
	"resize":              nil,
	"scale":               nil,
	"status":              nil,
	"token":               nil,
}

// subresource is written for a subresource of obj.
func (l *bounded) subresource(obj, sub any, name string) *callState {
	c := l.written(sub)
	kinds, own := ownSubresources[name]
	if !own {
		c.want, c.whose = schema.GroupVersionKind{}, nil
		return c
	}
	c.also = kinds
	c.nameOf(obj)
	if c.whose != nil && name == "token" {
		c.whose.mayBeNameless = true
	}

	return c
}

// readSubresource is answer for a subresource of obj. In some groups,
// subresources do not have its name.
func (l *bounded) readSubresource(obj, sub any) *callState {
	c := l.answer(sub)
	c.nameOf(obj)
	if c.whose != nil {
		c.whose.mayBeNameless = true
	}
	return c
}

// nameOf requires the answer to be obj's, if it is decoded.
func (c *callState) nameOf(obj any) {
	if c.into != nil {
		c.whose = whoseIs(obj)
	}
}
