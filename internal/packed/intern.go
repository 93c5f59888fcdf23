// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	internSlots = 1 << 13
	// internMax is the longest text worth a slot: longer ones are rarely shared,
	// and slots outlive the objects.
	internMax = 1 << 10
)

// interner gives equal texts one copy, as far as they come close to each other
// in time: it is a table without chains in which the newer text wins. That
// bounds its memory (a complete table needs weak references, and those cost
// more than most label sets), never blocks, and finds what matters: replicas
// are listed side by side, and an update follows its object.
type interner struct {
	slots [internSlots]atomic.Pointer[text]
}

var internSeed = maphash.MakeSeed()

// text returns the shared copy of b; nil for no bytes.
func (in *interner) text(b []byte) *text {
	switch {
	case len(b) == 0:
		return nil
	case len(b) > internMax:
		return &text{string(b)}
	}
	slot := &in.slots[maphash.Bytes(internSeed, b)%internSlots]
	if t := slot.Load(); t != nil && t.json == string(b) {
		return t
	}
	t := &text{string(b)}
	slot.Store(t)
	return t
}
