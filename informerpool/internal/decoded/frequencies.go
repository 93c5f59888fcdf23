// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package decoded

import (
	"hash/maphash"

	"github.com/fleetcache/fleetcache/internal/packed"
)

const (
	// counters is the number of counters, in bytes. More objects than that are
	// mixed up, which costs hits, and nothing else.
	counters = 1 << 16
	maxCount = 15
	// period is how often each cached object is read on average until all
	// counts are halved, and minPeriod the least number of reads until then.
	period    = 10
	minPeriod = 1000
)

// frequencies counts, approximately, how often objects were read of late. It is
// a count-min sketch: an object has four counters, which it shares with others,
// and the least of them is the nearest.
type frequencies struct {
	counts []uint8
	reads  int // since the counts were halved
}

var seed = maphash.MakeSeed()

// hashOf identifies an object by its address.
func hashOf(o *packed.Object) uint64 { return maphash.Comparable(seed, o) }

// count counts a read of an object, and returns how many there were.
func (f *frequencies) count(hash uint64, cached int) uint8 {
	if f.counts == nil {
		f.counts = make([]uint8, counters)
	}
	if f.reads++; f.reads > max(period*cached, minPeriod) {
		f.reads = 0
		for i := range f.counts {
			f.counts[i] /= 2
		}
	}
	least := f.of(hash)
	if least == maxCount {
		return least
	}
	for range 4 { // the others count other objects, too
		if at := &f.counts[hash%counters]; *at == least {
			*at++
		}
		hash >>= 16
	}

	return least + 1
}

// of returns how many reads of an object there were.
func (f *frequencies) of(hash uint64) uint8 {
	least := uint8(maxCount)
	for range 4 {
		least = min(least, f.counts[hash%counters])
		hash >>= 16
	}
	return least
}
