// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package conditions turns what a ClusterCache reports about its clusters and
// watches into conditions, for operators that write them into the status of
// their own objects:
//
//	status, _ := cc.Cluster(cluster).Status() // of an unknown cluster: Unknown
//	all := &obj.Status.Conditions
//	meta.SetStatusCondition(all, conditions.ClusterReady(status, obj.Generation))
//	declared := cc.Declared(owner)
//	meta.SetStatusCondition(all, conditions.WatchesSynced(declared, obj.Generation))
//
// # Transition times
//
// Conditions have no LastTransitionTime. apimachinery's meta.SetStatusCondition
// keeps the time that is there, and sets a new one only where the condition's
// status changes; an operator that writes conditions in another way sets the
// time itself. SetStatusCondition also reports whether anything changed, and so
// whether a write is needed.
//
// # Messages
//
// A message depends on the state alone: it has no times, no number of attempts,
// and no text that differs from one attempt to the next. So a status is written
// when the state changes, and not whenever something is tried again. A message
// is printable and has no more than 1024 bytes.
//
// Therefore a message is a sentence of this module about the reason, followed
// by what is at fault: the object of the hub and the field, or the kinds and
// clusters. It does not quote Status.LastError, whose text may hold addresses,
// times and messages of API servers, and goes to logs and the debug page.
// docs/runbook.md has a section for each reason of a cluster.
//
// All functions are pure, so that they can be called from anywhere.
//
// # Tests
//
// The leading test is TestEveryPhaseAndReasonMakesAValidCondition.
package conditions
