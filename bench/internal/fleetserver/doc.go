// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleetserver serves many clusters from one process, for measuring what
// watching them costs. Each cluster has an address, an authority, a credential,
// a UID and a history of its own, and answers the requests of informers over
// HTTP/2 and TLS as kube-apiserver does; its tests compare the two.
//
//	Fleet ── cluster ── table of a kind: revisions of objects, log of changes
//	                      │
//	                   list, watch ── render ── objects.Generator
//
// Servers are cheap because they keep no objects: an object is generated from
// its number and its revision each time it is sent. They cannot be written to,
// have no label selectors, and refuse what they do not have with an error.
package fleetserver
