// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package restmap answers which resource serves a kind in a cluster, for
// fleets.
//
// A [Table] holds what discovery said in a compact form, once for all clusters
// that said the same: a vanilla cluster takes some 10 KB, and a thousand of
// them take no more. Each cluster has a [Mapper], which reads the aggregated
// discovery documents (or the older ones, where a server has no others) and
// asks again only when a kind is missing. The first question to a new cluster
// names the document that most of the fleet has, so that a cluster like the
// others answers with 304 and no body.
//
// No cluster can change what another one's mapper answers: a document is found
// by its ETag only if the ETag has been verified to be the hash of the
// document.
package restmap
