// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package packed stores Kubernetes objects in little memory. A packed object is
// a small header with the fields that handlers and predicates need, plus the
// rest of the object as compressed JSON that is decoded only when it is read.
//
//	raw JSON ── wire.Scan ──► Item ── Codec.Pack ──► Object
//	                                                    │
//	   header: name, UID, versions, times, digest ──────┤
//	   body:   all the rest, compressed ────────────────┘
//	          │
//	          ├──► Into, DeepCopyObject, AppendJSON, ...
//	          └─── needs the dictionary of its Kind
//
// # Objects
//
// An [Object] is immutable. It implements the methods of controller-runtime's
// client.Object read-only: setters panic. Name, namespace, UID, versions and
// timestamps need no decoding; labels and owner references are decoded from the
// beginning of the body; annotations, finalizers and all of the metadata from
// what precedes the rest of the object. [Object.Into] and
// [Object.DeepCopyObject] build Go values that belong to the caller.
//
// # Dictionaries
//
// One [Codec] serves a whole fleet, because clusters of a fleet hold
// near-identical objects. For each kind it makes a dictionary from the first
// objects it sees: the text of one of them, and what others have besides. What
// else packing and reading need, about 60 KB, is made when it is needed, and the
// garbage collector takes it. A dictionary is immutable once published, and a
// body names the dictionary that packed it. Namespaces are stored once.
//
// # Bodies
//
// The first byte of a body specifies how the rest is encoded: as JSON, raw or
// compressed, or, once the kind has a dictionary, as a dense block: what
// differs from a sample in the dictionary, in prefix codes made of the samples,
// and base64 in six bits a character, without the ends of its lines. Text that
// is in base64, as PEM in a Secret is, is text in a block, at up to three
// levels: so certificates and keys take little more than their DER. Labels and
// owner references take about 30 bytes of it, also where many objects have the
// same: sharing them in memory would cost more, unless there are dozens. The
// first dense blocks of a dictionary, and then one in 16, are decoded before
// they are kept; once one did not come back byte for byte, all are. Bodies of
// kinds that are read into Go structs could be protobuf under a code of their
// own.
//
// # Tests
//
// TestSizeIsWhatTheHeapHolds and TestPEMTakesAsMuchAsDER cover memory.
// TestPackUnstructuredEqualsPackingItsJSON covers content.
package packed
