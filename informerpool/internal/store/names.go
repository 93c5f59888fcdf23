// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"hash/maphash"
	"iter"
	"unsafe"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// names are the objects of one namespace by their names: a hash table of
// pointers, in which an object is in the first free slot from that of its
// name's hash on. A map would keep a string header with each object, and room
// for eight objects where there are fewer.
type names struct {
	slots []*packed.Object // their number is a power of two
	tags  []uint8          // of the slots of a large table: some bits of the hash, or 0 if it is free
	count int
}

const (
	// fullMax is how many slots may all be in use. Larger tables have free
	// slots, at which a search ends, and tags, so that it looks at few objects.
	fullMax = 8
	// namesBytes is the memory of names besides slots and tags: the struct, its
	// entry in the map of namespaces, and the namespace's name, which all
	// stores share.
	namesBytes = 64 + 40 + 120
	slotBytes  = int64(unsafe.Sizeof((*packed.Object)(nil)))
)

var nameSeed = maphash.MakeSeed()

// bytes returns the memory of names.
func (n *names) bytes() int64 {
	return namesBytes + slotBytes*int64(len(n.slots)) + int64(len(n.tags))
}

// place returns the slot in which the search for a name begins, and its tag.
func (n *names) place(name string) (at int, tag uint8) {
	h := maphash.String(nameSeed, name)
	return int(h & uint64(len(n.slots)-1)), uint8(h>>56) | 1 //nolint:gosec // below the length; 8 bits
}

// find returns the slot with an object of that name, or else the free slot
// where it belongs; -1 if there is neither.
func (n *names) find(name string) (at int, tag uint8) {
	if len(n.slots) == 0 {
		return -1, 0
	}
	at, tag = n.place(name)
	for range n.slots {
		o := n.slots[at]
		if o == nil || (n.tags == nil || n.tags[at] == tag) && packed.NameOf(o) == name {
			return at, tag
		}
		at = (at + 1) & (len(n.slots) - 1)
	}
	return -1, tag
}

// get returns the object of that name, or nil.
func (n *names) get(name string) *packed.Object {
	if at, _ := n.find(name); at >= 0 {
		return n.slots[at]
	}
	return nil
}

// set fills a slot, or frees it.
func (n *names) set(at int, o *packed.Object, tag uint8) {
	n.slots[at] = o
	if n.tags != nil {
		n.tags[at] = tag
	}
}

// put stores an object, in place of one with the same name.
func (n *names) put(o *packed.Object) {
	at, tag := n.find(packed.NameOf(o))
	if at < 0 || n.slots[at] == nil {
		n.count++
		if size := slotsFor(n.count); size > len(n.slots) {
			n.resize(size)
			at, tag = n.find(packed.NameOf(o))
		}
	}
	n.set(at, o, tag)
}

// remove removes the object of that name, if there is one.
func (n *names) remove(name string) {
	free, _ := n.find(name)
	if free < 0 || n.slots[free] == nil {
		return
	}
	n.set(free, nil, 0)
	n.count--
	// Objects behind the free slot that belong to it, or before it, move up:
	// a search ends at a free slot.
	mask := len(n.slots) - 1
	for at := (free + 1) & mask; n.slots[at] != nil; at = (at + 1) & mask {
		o := n.slots[at]
		if home, tag := n.place(packed.NameOf(o)); (at-home)&mask >= (at-free)&mask {
			n.set(free, o, tag)
			n.set(at, nil, 0)
			free = at
		}
	}

	if size := slotsFor(n.count); size <= len(n.slots)/4 {
		n.resize(2 * size)
	}
}

// slotsFor returns how many slots so many objects need, a power of two. In a
// table at least an eighth of them is free.
func slotsFor(count int) int {
	size := 1
	for size < count || size > fullMax && size*7 < count*8 {
		size *= 2
	}
	return size
}

func (n *names) resize(size int) {
	old := n.slots
	n.slots, n.tags = make([]*packed.Object, size), nil
	if size > fullMax {
		n.tags = make([]uint8, size)
	}
	for _, o := range old {
		if o != nil {
			at, tag := n.find(packed.NameOf(o))
			n.set(at, o, tag)
		}
	}
}

// all yields the objects, in no order.
func (n *names) all() iter.Seq[*packed.Object] {
	return func(yield func(*packed.Object) bool) {
		for _, o := range n.slots {
			if o != nil && !yield(o) {
				return
			}
		}
	}
}
