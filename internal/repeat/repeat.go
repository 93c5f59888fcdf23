// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package repeat says how often tests do the same again with other random
// choices, or with more of everything, and makes that cheaper.
package repeat

import (
	"os"
	"runtime/debug"
	"testing"
)

// Times returns n, or a fifth of it with -short: under the race detector, which
// makes a test take five times as long, more of the same finds little more.
func Times(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// CollectRarely lets a test binary allocate four times of what it holds before
// it collects garbage, unless GOGC says otherwise. A TestMain calls it. Such a
// binary holds little and allocates much: by default it would spend a fifth of
// its CPU time on collections.
func CollectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
