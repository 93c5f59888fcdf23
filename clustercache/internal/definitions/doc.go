// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package definitions notices when a cluster may have begun to serve a kind. It
// watches the CustomResourceDefinitions and APIServices of a cluster for as
// long as kinds are missing there:
//
//	Want(groups) ──► Watcher ──► stream of CustomResourceDefinitions ─┐ name ends
//	                    │                                             │ with a group
//	                    └──────► stream of APIServices ───────────────┤
//	                                                                  ▼
//	Config.Changed  ◄── at once, and again for a few seconds ◄──── changes
//
// What a stream carries is a hint, and nothing more: discovery decides which
// kinds are served. A stream requests metadata alone, begins at the current
// version, and so carries nothing of the definitions that exist. Where the
// cluster refuses it, the periodic queries of discovery remain.
//
// A cluster in which no kind is missing costs nothing. One in which some are
// costs two watches and their goroutines.
//
// # Tests
//
// The leading test is TestKindIsServedWithinASecond (test/declaring).
// TestHazardDefinitionsAreForbidden (test/declaring) covers missing rights.
package definitions
