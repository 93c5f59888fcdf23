// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package members keeps one value per member of a changing set, such as the
// watches in each cluster that a selection selects. Whether a key is a member
// may change at any time, and several goroutines may look at it at once:
//
//	a change, then Look ──► Wanted? ── yes, and absent ──► Acquire ──► Entered ──┐
//	                 ▲         └────── no, and present ──► Left ─────────────────┤
//	                 └───────────────── look again ──────────────────────────────┘
//
// Look ends only once it has seen that nothing is left to do after its own last
// step. So, however the calls interleave, the last of them leaves what the last
// change asks for.
//
// # Tests
//
// The leading test is TestMembersAreThoseThatAreWantedHoweverLooksInterleave.
package members
