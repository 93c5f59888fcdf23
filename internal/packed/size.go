// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"slices"
	"unsafe"
)

// sizeClasses are the sizes to which the runtime rounds up small allocations.
var sizeClasses = [...]int{
	0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416,
	448, 480, 512, 576,
	640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376,
	6144, 6528, 6784,
	6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672,
	32768,
}

// pageSize is the unit to which it rounds up larger ones.
const pageSize = 8 << 10

// heapSize returns how many bytes an allocation of n bytes takes.
func heapSize(n int) int {
	if n > sizeClasses[len(sizeClasses)-1] {
		return (n + pageSize - 1) / pageSize * pageSize
	}
	at, _ := slices.BinarySearch(sizeClasses[:], n)
	return sizeClasses[at]
}

// Size returns how many bytes of heap the object takes: header with name, and
// body. It excludes the kind's dictionary and the namespace.
func (o *Object) Size() int {
	n := headers[headerOf(int(o.nameLen))].size + heapSize(len(o.body))
	if o.rare != nil {
		n += heapSize(int(unsafe.Sizeof(rare{}))) + heapSize(len(o.rare.name)) + heapSize(len(o.rare.uid)) +
			heapSize(len(o.rare.version))
	}
	return n
}
