// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package packed keeps one Kubernetes object in little memory: a small header
// that answers what handlers and predicates ask, and the rest of the object as
// compressed JSON that is decoded when somebody reads it.
//
// # Objects
//
// An [Object] is immutable. It implements the methods of controller-runtime's
// client.Object read-only: setters panic. Name, namespace, UID, versions,
// timestamps, labels and owner references cost no decode; annotations and
// finalizers cost one decompression. [Object.Into] and [Object.DeepCopyObject]
// build Go values that belong to the caller.
//
// # Sharing
//
// A [Codec] serves a whole fleet, because clusters of a fleet hold
// near-identical objects. Per kind it makes a dictionary of the first objects
// it sees, which is immutable once published; a body names the dictionary that
// packed it. Labels, owner references and namespaces that many objects have in
// common are kept once.
//
// # Bodies
//
// A body begins with one byte that says how the rest is encoded. JSON, raw or
// compressed with or without a dictionary, is what exists today; bodies of
// kinds that are read into Go structs could be protobuf under a code of their
// own.
package packed
