// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// Expect is what an object must be to enter a store. The zero value asks only
// for an identity: a name, a UID and a resourceVersion.
type Expect struct {
	// APIVersion and Kind must equal those of the object where it has them,
	// as items of typed lists do not; "" accepts any.
	APIVersion, Kind string
	// Namespace must be the object's; "" accepts any.
	Namespace string
	// Namespaced says whether objects must have a namespace (true) or must not
	// (false); nil accepts both.
	Namespaced *bool
}

// Check returns a [*FieldError] that names the first field that is not as
// expected, or nil. It does not look at whether the resourceVersion is a number.
func (e Expect) Check(it Item) error {
	if err := e.CheckKind(it); err != nil {
		return err
	}
	if reason := badSegment(it.Name); reason != "" {
		return &FieldError{"metadata.name", reason}
	}
	if err := e.checkNamespace(it.Namespace); err != nil {
		return err
	}
	switch {
	case it.UID == "":
		return &FieldError{"metadata.uid", "is missing"}
	case it.ResourceVersion == "":
		return &FieldError{"metadata.resourceVersion", "is missing"}
	}
	return nil
}

// CheckKind is the part of Check that concerns the kind and the API version.
func (e Expect) CheckKind(it Item) error {
	switch {
	case e.Kind != "" && it.Kind != "" && it.Kind != e.Kind:
		return &FieldError{"kind", "is " + Excerpt(it.Kind) + ", not " + Excerpt(e.Kind)}
	case e.APIVersion != "" && it.APIVersion != "" && it.APIVersion != e.APIVersion:
		return &FieldError{"apiVersion", "is " + Excerpt(it.APIVersion) + ", not " + Excerpt(e.APIVersion)}
	}
	return nil
}

func (e Expect) checkNamespace(namespace string) error {
	const field = "metadata.namespace"
	if namespace == "" {
		if e.Namespace != "" || e.Namespaced != nil && *e.Namespaced {
			return &FieldError{field, "is missing"}
		}
		return nil
	}
	if e.Namespaced != nil && !*e.Namespaced {
		return &FieldError{field, "is " + Excerpt(namespace) + ", but the kind has no namespaces"}
	}
	if e.Namespace != "" && namespace != e.Namespace {
		return &FieldError{field, "is " + Excerpt(namespace) + ", not " + Excerpt(e.Namespace)}
	}
	if reason := badSegment(namespace); reason != "" {
		return &FieldError{field, reason}
	}
	return nil
}

// badSegment says why a name cannot be a segment of a path: objects are keyed
// by namespace/name, and names end up in request paths.
func badSegment(name string) string {
	switch {
	case name == "":
		return "is missing"
	case name == ".", name == "..", strings.ContainsAny(name, "/%"):
		return "is " + Excerpt(name) + ", which is no path segment"
	}
	return ""
}
