// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package levels delivers level-triggered changes: a subscriber learns that
// something has changed, and looks for itself how it is by then. In the queue of
// a subscriber a thing waits at most once, however often it changes, so that a
// slow subscriber costs no more memory than there are things:
//
//	Publish ──► Hub ──► Queue of each subscriber ──► Next
//	                    Put: for this one alone
package levels
