// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package answer decides which of several informers of a kind answers a read,
// so that the cached answers to a read never go back, although each informer
// follows the server at its own pace:
//
//	read ──► needs a number ──► informers, widest first: ──► Choose ──► cache
//	              ▲             trusted? reached it?            │         │
//	              │                                             ▼         │
//	              │                                        API server     │
//	              └────────────── Scope.Get, Scope.List ──────────────────┘
//
// The rule:
//
//  1. A scope is a set of objects that is wanted by itself: a name, a namespace,
//     a selection by labels or other fields; and the kind, always.
//  2. A scope has two numbers: the latest moments that cached gets of its
//     objects, and cached lists of the whole scope, have shown.
//  3. A get needs the number of the narrowest of name, namespace and kind; a
//     list needs the number of the scope that it selects, or else of the kind.
//  4. The first informer that is trusted and has reached that number answers,
//     the widest first.
//  5. A get that has found an object raises its number to the version of the
//     object; one that has not, and a list, to the position of the informer.
//  6. An informer that selects by labels or other fields never decides that an
//     object is absent, and is tried last; where it answers a get, the version is
//     remembered for that object, and no informer answers with an earlier state.
//  7. Otherwise the API server answers, or the read is stale.
//  8. A moment is a history and a version in it: an informer in an earlier
//     history than was shown is behind until it has listed.
//  9. A scope that ends leaves its numbers to those that contain it, and a new
//     one begins with theirs; the kind's are kept for good.
//  10. A list of an informer is not older than anything that reads or its own
//     handlers were shown when it began.
//  11. A rider that loses its informer begins with the objects of that one, and
//     its watch at the position of that one, which is never a later one.
//
// Numbers are looked up after the positions and objects of the candidates, and
// raised before the read returns: so a read that begins later needs them.
//
// It is the rule that reads are to follow; so far they compare informers object
// by object.
//
// The tests are a model of a server and its informers under this rule, whose
// states are visited completely to a depth, and at random beyond it.
package answer
