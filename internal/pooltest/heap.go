// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"runtime"
)

// LiveHeap is how many bytes are reachable, once memory pools and the remains
// of earlier tests have settled.
func LiveHeap() int64 {
	var m runtime.MemStats
	for last := int64(-1); ; {
		runtime.GC()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		if now := int64(m.HeapAlloc); last >= 0 && last-now < 10_000 {
			return now
		}
		last = int64(m.HeapAlloc)
	}
}

// LiveHeapUnder returns the first size of the live heap under a bound, or that
// of the last of a hundred tries: it may take more than one collection until
// released memory is gone, while retained memory is in every measurement.
func LiveHeapUnder(bound int64) int64 {
	for range 100 {
		if now := LiveHeap(); now < bound {
			return now
		}
		runtime.Gosched()
	}
	return LiveHeap()
}
