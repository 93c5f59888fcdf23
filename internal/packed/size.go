// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"slices"
	"unsafe"
)

// sizeClasses are what the runtime allocates small values in.
var sizeClasses = [...]int{
	0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576,
	640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784,
	6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672, 32768,
}

// pageSize is what larger ones are rounded up to.
const pageSize = 8 << 10

// heapSize returns what an allocation of n bytes takes.
func heapSize(n int) int {
	if n > sizeClasses[len(sizeClasses)-1] {
		return (n + pageSize - 1) / pageSize * pageSize
	}
	at, _ := slices.BinarySearch(sizeClasses[:], n)
	return sizeClasses[at]
}

// headerSize is what each object's header takes.
const headerSize = int(unsafe.Sizeof(Object{}))

// Size returns about how many bytes of heap the object costs: header, name,
// body and what it may share with other objects of its store, labels and owner
// references, as if it alone had them. The kind's dictionary and the namespace
// are not counted.
func (o *Object) Size() int { return o.OwnSize() + int(o.labels.size()+o.owners.size()) }

// OwnSize is Size without what a store counts once for all of its objects; see
// [Shared].
func (o *Object) OwnSize() int {
	n := heapSize(headerSize) + heapSize(len(o.name)) + heapSize(len(o.body))
	if o.rare != nil {
		n += heapSize(int(unsafe.Sizeof(rare{}))) + heapSize(len(o.rare.uid)) + heapSize(len(o.rare.version))
	}
	return n
}
