// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package levels coalesces changed keys for level-triggered subscribers: a
// subscriber learns which keys have changed, and reads their current state
// itself. A key waits at most once in the queue of a subscriber, however often
// it changes, so a slow subscriber costs no more memory than there are keys:
//
//	Publish ──► Hub ──► Queue of each subscriber ──► Next
//	                    Put: for this one alone
//
// # Tests
//
// The leading test is TestSlowSubscriberGetsAlternatingEventsAndTheLastState
// (test/watching).
package levels
