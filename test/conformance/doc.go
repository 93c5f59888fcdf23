// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance is what a ClusterCache does in front of a cluster, as
// tests that are written once: they run against the fake clusters of
// clustercachetest and against real ones, so that the fakes behave as what they
// stand for. Only tests import it.
package conformance
