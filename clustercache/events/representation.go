// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

// Representation is the Go type of the objects that a user's function receives.
type Representation uint8

// Representations of objects.
const (
	// AsGiven is the representation in which the user named the kind: [Typed]
	// for a typed object, [Unstructured] for an unstructured one, and [Metadata]
	// for a *metav1.PartialObjectMetadata, which clustercache.Kind returns. It
	// is the default. A selection that names no kind uses [Packed].
	AsGiven Representation = iota
	// Packed is the cached object itself, shared and read-only. Its metadata
	// can be read without decoding.
	Packed
	// Typed is an object of the kind's Go type in Options.Scheme, or an
	// unstructured object if the scheme does not have the kind.
	Typed
	// Unstructured is an *unstructured.Unstructured.
	Unstructured
	// Metadata is a *metav1.PartialObjectMetadata.
	Metadata
)
