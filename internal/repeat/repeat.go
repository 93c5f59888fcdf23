// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package repeat says how often tests do the same again with other random
// choices, or with more of everything.
package repeat

import "testing"

// Times returns n, or a fifth of it with -short: under the race detector, which
// makes a test take five times as long, more of the same finds little more.
func Times(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}
