// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterapi provides a clustercache.ClusterCache through the interface
// of Cluster API's controllers/clustercache, v1.14, so that controllers written
// for that interface need no change.
package clusterapi
