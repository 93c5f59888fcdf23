// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package restmap finds the resource that serves a kind in a cluster, for
// fleets of clusters.
//
// A [Table] stores discovery documents in a compact form, once for all clusters
// with the same content: a vanilla cluster takes some 10 KB, and a thousand of
// them take no more. Each cluster has a [Mapper], which reads the aggregated
// discovery documents, or the older ones if the server has no others, and
// queries the cluster again when a kind is missing or the documents are too
// old. The first request to a new cluster carries the ETag of the document that
// most of the fleet has, so a cluster like the others answers with 304 and no
// body.
//
//	ResourceFor, KindFor, RESTMapper ──► Mapper ──► snapshot
//	                                       │           │
//	             not known, or too old:    │           ▼
//	             discover ── lead ── ask ──┘        entry in Table,
//	                                  │             shared by the fleet
//	                             cluster: /api, /apis
//
// No cluster can change the answers of another cluster's mapper: a document is
// found by its ETag only if the ETag has been verified to be the hash of the
// document.
//
// # Tests
//
// The leading test is TestMappingsAgreeWithClientGo.
// TestClusterCannotPoisonOthers covers shared documents.
package restmap
