// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package wire reads Kubernetes list and watch bodies as bytes. It splits a
// list page or a watch stream into the raw JSON of its objects, validates each
// object, finds its metadata and drops the parts that a cache does not keep,
// without ever building a map.
//
//	list page   ──► ListReader  ──┐  raw object        Item
//	                              ├────────────► Scan ─────► AppendRest, ...
//	watch body  ──► FrameReader ──┘
//
// # Reading
//
// [ListReader] streams one list page, [FrameReader] a watch. Both return byte
// slices that stay valid until the next call, hold one pooled buffer in
// proportion to the largest object, and are bounded by [Limits]. They determine
// where an object begins and ends; [Scan] determines whether it is well-formed.
//
// # Meaning
//
// An object that Scan accepts means exactly what unstructured accessors read
// from it after encoding/json has decoded it into map[string]any: the last of
// several equal keys wins, escapes and invalid UTF-8 are resolved alike, null
// counts as absent. Where an accessor would silently return "" or 0 for a field
// of the wrong type, Scan refuses the object with a [FieldError], because a
// cache must not guess. A later decode of the same bytes into map[string]any
// cannot fail.
//
// # Errors
//
// Every refusal is a [*FieldError], [*LimitError] or [*SyntaxError]. None
// contains a value of the object, because bodies may be Secrets. Names and
// kinds appear as short sanitized excerpts.
//
// # Tests
//
// TestRepeatedKeysMeanTheLastOneEverywhere covers meaning, which fuzz tests
// compare with encoding/json. TestEndlessBodiesHitALimit covers limits.
package wire
