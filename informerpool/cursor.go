// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// cursor is where a reflector continues.
type cursor struct {
	epoch    Epoch  // the epoch that resume belongs to
	resume   string // the resourceVersion to continue at; if empty, list
	reach    string // the newest resourceVersion the store has seen in this history
	replace  bool   // the next list is of a new history: versions are not comparable with those of the store
	distrust error  // why a list must follow the stream, instead of a resume; nil if it may be resumed
}
