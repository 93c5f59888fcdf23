// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package wire reads Kubernetes list and watch bodies as bytes: it splits a
// list page or a watch stream into the objects' raw JSON, validates each
// object, finds its metadata and drops what a cache does not keep, without ever
// building a map.
//
// # Reading
//
// [ListReader] streams one list page, [FrameReader] a watch. Both hand out byte
// slices that stay valid until the next call, hold one pooled buffer no larger
// than the biggest object, and are bounded by [Limits]. They decide where an
// object begins and ends; whether it is well-formed is decided by [Scan].
//
// # Meaning
//
// What Scan accepts means exactly what encoding/json makes of it when it
// decodes into map[string]any and unstructured accessors read that map: the
// last of several equal keys wins, escapes and invalid UTF-8 are resolved
// alike, null is absent. Where an accessor would silently answer "" or 0 for a
// field of the wrong type, Scan refuses the object with a [FieldError] instead:
// a cache must not guess. Whatever Scan accepts, a later decode of the same
// bytes into map[string]any cannot fail on.
//
// # Errors
//
// Every refusal is a [*FieldError], [*LimitError] or [*SyntaxError]. None holds
// a value of the object: bodies may be Secrets. Names and kinds appear as short
// sanitized excerpts.
package wire
