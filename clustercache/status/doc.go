// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package status has the snapshots of clusters and watches that a ClusterCache
// returns: what state each is in, since when, and why. They can be written as
// JSON, and hold no credentials and no text from a remote server beyond the
// bounded message of an API status, and the names of failing checks.
//
// docs/runbook.md says of each phase and reason what to do about it.
package status
