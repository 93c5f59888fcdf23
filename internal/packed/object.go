// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"strconv"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	_ metav1.Object  = (*Object)(nil)
	_ runtime.Object = (*Object)(nil)
)

// Flags of an object: fields that its header or body has.
const (
	hasUID           = 1 << iota // uid
	hasVersion                   // version
	hasCreated                   // created
	hasLabels                    // the body contains labels
	hasOwners                    // the body contains ownerReferences
	hasAnnotations               // the body may contain annotations
	hasFinalizers                // the body may contain finalizers
	hasGracePeriod               // the body may contain deletionGracePeriodSeconds
	hasManagedFields             // the body may contain managedFields
)

// Object is one packed object. It is immutable and safe for concurrent use.
type Object struct {
	immutable
	single

	kind       *Kind
	namespace  unique.Handle[string]
	body       string
	rare       *rare
	name       *byte // behind the object, in its allocation, also in a copy
	uid        [16]byte
	version    uint64
	labels     Labels // a digest
	created    uint32 // Unix seconds
	generation uint32
	flags      uint16
	nameLen    uint8
	begin      [nameRoom]byte // where the name begins, except in a copy
}

// rare holds fields that few objects have, or have in an unusual form.
type rare struct {
	name       string // if it is longer than the header's can be
	uid        string
	version    string
	created    metav1.Time
	deleted    metav1.Time
	generation int64
}

// Kind returns the object's kind.
func (o *Object) Kind() *Kind { return o.kind }

// Version returns the resourceVersion as a number, or false if it is not a
// number.
func (o *Object) Version() (uint64, bool) { return o.version, o.flags&hasVersion != 0 }

// GetNamespace returns metadata.namespace.
func (o *Object) GetNamespace() string { return o.namespace.Value() }

// GetName returns metadata.name. The string keeps no object alive.
func (o *Object) GetName() string { return strings.Clone(NameOf(o)) }

// GetUID returns metadata.uid.
func (o *Object) GetUID() types.UID {
	if o.flags&hasUID == 0 {
		if o.rare != nil {
			return types.UID(o.rare.uid)
		}
		return ""
	}

	var buf [uidLen]byte
	return types.UID(appendUID(buf[:0], o.uid))
}

// GetResourceVersion returns metadata.resourceVersion.
func (o *Object) GetResourceVersion() string {
	switch {
	case o.flags&hasVersion != 0:
		return strconv.FormatUint(o.version, 10)
	case o.rare != nil:
		return o.rare.version
	}

	return ""
}

// GetGeneration returns metadata.generation.
func (o *Object) GetGeneration() int64 {
	if o.generation == 0 && o.rare != nil {
		return o.rare.generation
	}
	return int64(o.generation)
}

// GetCreationTimestamp returns metadata.creationTimestamp.
func (o *Object) GetCreationTimestamp() metav1.Time {
	switch {
	case o.flags&hasCreated != 0:
		return metav1.Unix(int64(o.created), 0)
	case o.rare != nil:
		return o.rare.created
	}

	return metav1.Time{}
}

// GetDeletionTimestamp returns metadata.deletionTimestamp, or nil unless the
// object is being deleted.
func (o *Object) GetDeletionTimestamp() *metav1.Time {
	if o.rare == nil || o.rare.deleted.IsZero() {
		return nil
	}
	return new(o.rare.deleted)
}

// GetObjectKind returns the object's kind. Setting it panics.
func (o *Object) GetObjectKind() schema.ObjectKind { return objectKind{o.kind} }

// SameContent reports whether o and p are the same object in the same state,
// regardless of their resourceVersions. True is certain; false may also mean
// that two servers encoded the same state differently.
func (o *Object) SameContent(p *Object) bool {
	if o == p {
		return true
	}
	if o == nil || p == nil || !o.sameHeader(p) {
		return false
	}
	if o.body == p.body {
		return true // a body names its dictionary
	}
	a, err := o.open(toEnd)
	if err != nil {
		return false
	}
	defer a.close()
	b, err := p.open(toEnd)
	if err != nil {
		return false
	}
	defer b.close()

	return a.s.parts == b.s.parts && string(a.s.plain) == string(b.s.plain)
}

func (o *Object) sameHeader(p *Object) bool {
	return o.kind == p.kind && o.namespace == p.namespace && NameOf(o) == NameOf(p) &&
		o.uid == p.uid && o.created == p.created && o.generation == p.generation &&
		o.flags&^hasVersion == p.flags&^hasVersion && o.rare.same(p.rare)
}

// same compares fields that are not in the body.
func (r *rare) same(q *rare) bool {
	var a, b rare
	if r != nil {
		a = *r
	}
	if q != nil {
		b = *q
	}
	return a.uid == b.uid
}

// objectKind is the schema.ObjectKind of a packed object.
type objectKind struct{ kind *Kind }

// GroupVersionKind implements schema.ObjectKind.
func (k objectKind) GroupVersionKind() schema.GroupVersionKind { return k.kind.gvk }

// SetGroupVersionKind implements schema.ObjectKind; it panics.
func (objectKind) SetGroupVersionKind(schema.GroupVersionKind) { panic(readOnly) }
