// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"math"
)

// Defaults of [Limits].
const (
	// DefaultObjectLimit is a bit more than six times etcd's default limit for
	// one request: JSON may encode one byte of a string in six.
	DefaultObjectLimit = 10 << 20
	// DefaultResponseLimit bounds one list page: 500 objects of 512 KiB.
	DefaultResponseLimit = 256 << 20
	// MaxSpace is how much white space may appear between two tokens of a page
	// or a stream, or in an object that is passed. More of it, which compresses
	// a thousandfold, is not a meaningful response.
	MaxSpace = 1 << 20
	// MaxKept is how many bytes ListReader.Members keeps. Lists have only a few
	// numbers there.
	MaxKept = 256 << 10
	// MaxDepth is how deep objects and arrays may be nested, as in
	// encoding/json.
	MaxDepth = 10000
)

// passes is the maximum size of an object that is passed, as a multiple of the
// object limit or its default, whichever is larger. It lets readers pass every
// object that a server accepts, but not one without an end.
const passes = 4

// frameOverhead is how many bytes a watch frame may contain besides its object.
const frameOverhead = 1 << 10

// Limits bounds what a reader accepts from a remote server. The zero value
// means the defaults.
type Limits struct {
	// Object is the maximum size of an object in bytes, including
	// managedFields; 0 means DefaultObjectLimit. It also applies to the members
	// of a list other than its items.
	Object int
	// Response is the maximum size of a list page in (decompressed) bytes; 0
	// means DefaultResponseLimit. A watch has no end, so a FrameReader ignores
	// it.
	Response int64
	// Pass makes readers continue after an object that is too large, in bounded
	// memory, instead of failing. For such an object Next returns a document
	// that contains only its identity, and the reader's Scan returns a
	// LimitError. An object of more than four times Object or
	// DefaultObjectLimit, whichever is larger, ends the reader, because it may
	// have no end.
	Pass bool
}

func (l Limits) object() int { return cmp.Or(l.Object, DefaultObjectLimit) }

// passing returns how many bytes of one object are read at most to pass it; 0
// if none is passed.
func (l Limits) passing() int64 {
	if !l.Pass {
		return 0
	}
	return passes * min(max(int64(l.object()), DefaultObjectLimit), math.MaxInt64/passes)
}
