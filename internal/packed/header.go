// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"strings"
	"unsafe"
)

const (
	// nameRoom is how much of the name fits into the padding of Object.
	nameRoom = 5
	// nameMax is the maximum length of a name in a header. Those of Kubernetes
	// have at most 253 bytes.
	nameMax = 1<<8 - 1
)

// headerSize is the size of an object's header.
const headerSize = int(unsafe.Sizeof(Object{}))

// header is an object with the rest of its name.
type header[Rest any] struct {
	Object
	_ Rest
}

func newHeader[Rest any]() *Object { return &new(header[Rest]).Object }

// headers make objects with room for a name, in the sizes in which the runtime
// allocates.
var headers = [...]struct {
	size int
	make func() *Object
}{
	{96, func() *Object { return new(Object) }},
	{112, newHeader[[112 - headerSize]byte]},
	{128, newHeader[[128 - headerSize]byte]},
	{144, newHeader[[144 - headerSize]byte]},
	{160, newHeader[[160 - headerSize]byte]},
	{192, newHeader[[192 - headerSize]byte]},
	{224, newHeader[[224 - headerSize]byte]},
	{256, newHeader[[256 - headerSize]byte]},
	{352, newHeader[[352 - headerSize]byte]},
}

// headerOf returns the index of the headers for a name of n bytes, at most
// nameMax.
func headerOf(n int) int {
	for i := range headers {
		if headerSize-nameRoom+n <= headers[i].size {
			return i
		}
	}
	return len(headers) - 1
}

// newObject returns an object that has nothing but its name.
func newObject(k *Kind, name string) draft {
	if len(name) > nameMax {
		o := newObject(k, "")
		o.more().name = strings.Clone(name)
		return o
	}
	o := headers[headerOf(len(name))].make()
	o.kind = k
	o.nameLen = uint8(len(name)) //nolint:gosec // at most nameMax
	o.name = &o.begin[0]
	copy(unsafe.Slice(o.name, len(name)), name)

	return draft{o}
}

// NameOf returns the object's metadata.name without copying it. The string
// keeps the object alive, so that it must not be kept for longer.
func NameOf(o *Object) string {
	if o.rare != nil && o.rare.name != "" {
		return o.rare.name
	}
	return unsafe.String(o.name, o.nameLen)
}
