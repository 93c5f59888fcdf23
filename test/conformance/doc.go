// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance describes how a ClusterCache behaves towards a cluster,
// as tests that are written once and run against both the fake clusters of
// clustercachetest and real clusters. This ensures that the fakes behave like
// real clusters. Only tests import it.
package conformance
