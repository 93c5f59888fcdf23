// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package packed stores Kubernetes objects in little memory. A packed object is
// a small header with the fields that handlers and predicates need, plus the
// rest of the object as compressed JSON that is decoded only when it is read.
//
//	raw JSON ── wire.Scan ──► Item ── Codec.Pack ──► Object
//	                                                    │
//	         header: name, UID, versions, times ────────┤
//	         Shared: labels, owner references   ────────┤
//	         body:   all the rest, compressed   ────────┘
//	           │
//	           ├──► Into, DeepCopyObject, AppendJSON, ...
//	           └─── needs the dictionary of its Kind
//
// # Objects
//
// An [Object] is immutable. It implements the methods of controller-runtime's
// client.Object read-only: setters panic. Name, namespace, UID, versions,
// timestamps, labels and owner references need no decoding; annotations and
// finalizers need one decompression. [Object.Into] and [Object.DeepCopyObject]
// build Go values that belong to the caller.
//
// # Sharing
//
// One [Codec] serves a whole fleet, because clusters of a fleet hold
// near-identical objects. For each kind it makes a dictionary from the first
// objects it sees. A dictionary is immutable once published, and a body names
// the dictionary that packed it. Labels, owner references and namespaces that
// many objects have in common are stored once.
//
// # Bodies
//
// The first byte of a body specifies how the rest is encoded. Today's encodings
// are JSON, raw or compressed with or without a dictionary. Bodies of kinds
// that are read into Go structs could be protobuf under a code of their own.
package packed
