// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// Expect describes the requirements on an object that is to enter a store. The
// zero value requires only an identity: a name, a UID and a resourceVersion.
type Expect struct {
	// APIVersion and Kind must equal those of the object unless the object has
	// none, like the items of typed lists; "" accepts any.
	APIVersion, Kind string
	// Namespace must be the object's; "" accepts any.
	Namespace string
	// Unversioned also accepts objects without a resourceVersion, or without a
	// UID.
	Unversioned bool
}

// Check returns a [*FieldError] that names the first field that does not meet
// the requirements, or nil. It does not check whether the resourceVersion is a
// number.
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
	case it.UID == "" && !e.Unversioned:
		return &FieldError{"metadata.uid", "is missing"}
	case len(it.UID) > maxUID:
		return &FieldError{"metadata.uid", "is too long"}
	case it.ResourceVersion == "" && !e.Unversioned:
		return &FieldError{"metadata.resourceVersion", "is missing"}
	case len(it.ResourceVersion) > MaxVersion:
		return &FieldError{"metadata.resourceVersion", "is too long"}
	}

	return nil
}

// Limits of identities. Identities appear in every header, index, queue and
// error of an object, so they must not be as large as objects may be.
const (
	// MaxVersion is the maximum length of a resourceVersion. Those of etcd have
	// 19 digits; proxies that show several clusters as one encode a version of
	// each.
	MaxVersion = 4 << 10
	maxUID     = 256
	// maxName is far above the 253 bytes allowed for most kinds, because only
	// etcd limits the names of RBAC objects.
	maxName = 2 << 10
)

// CheckKind does the part of Check that concerns the kind and the API version.
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
	switch {
	case namespace == "" && e.Namespace == "":
		return nil
	case namespace != "" && e.Namespace != "" && namespace != e.Namespace:
		return &FieldError{field, "is " + Excerpt(namespace) + ", not " + Excerpt(e.Namespace)}
	}
	if reason := badSegment(namespace); reason != "" {
		return &FieldError{field, reason}
	}
	return nil
}

// badSegment returns why a name cannot be a segment of a path, or "". Objects
// are keyed by namespace/name, and names end up in request paths. All other
// checks are left to the server, because names of RBAC objects may contain
// colons and newlines. badSegment also refuses NUL, although servers accept it
// in those names, and invalid UTF-8, which reads as U+FFFD, so that two such
// names could be mistaken for each other.
func badSegment(name string) string {
	switch {
	case name == "":
		return "is missing"
	case name == ".", name == "..", strings.ContainsAny(name, "/%"):
		return "is " + Excerpt(name) + ", which is no path segment"
	case len(name) > maxName:
		return "is too long"
	case strings.ContainsAny(name, "\x00\uFFFD"):
		return "holds NUL or invalid UTF-8"
	}

	return ""
}
