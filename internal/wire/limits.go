// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "math"

// Defaults of [Limits].
const (
	// DefaultObjectLimit is a bit more than six times what etcd accepts in one
	// request by default: JSON may spell a byte of a string in six.
	DefaultObjectLimit = 10 << 20
	// DefaultResponseLimit bounds one list page: 500 objects of 512 KiB.
	DefaultResponseLimit = 256 << 20
	// MaxSpace is how much white space may lie between two tokens of a page or
	// a stream, or in an object that is passed: what is compressed to a
	// thousandth and means nothing is no answer.
	MaxSpace = 1 << 20
	// MaxKept is how much ListReader.Members keeps: lists have a few numbers
	// there.
	MaxKept = 256 << 10
	// MaxDepth is how deep objects and arrays may nest, as in encoding/json.
	MaxDepth = 10000
)

// passes is how many times the largest object one is read on for that is
// larger: those whom a server accepts are passed, and those without an end are
// not.
const passes = 4

// frameOverhead is what a watch frame may hold beside its object.
const frameOverhead = 1 << 10

// Limits bounds what a reader takes from a remote server. The zero value means
// the defaults.
type Limits struct {
	// Object is the largest object in bytes, managedFields included; 0 means
	// DefaultObjectLimit. Members of a list other than its items obey it too.
	Object int
	// Response is the largest list page in (decompressed) bytes; 0 means
	// DefaultResponseLimit. A watch has no end, so a FrameReader ignores it.
	Response int64
	// Pass makes readers go on behind an object that is too large, in bounded
	// memory, instead of failing: Next returns a document that holds the
	// identity of the object alone, and the reader's Scan of it a LimitError.
	// One of more than four times Object, and of DefaultObjectLimit, ends the
	// reader: it may have no end.
	Pass bool
}

func (l Limits) object() int {
	if l.Object <= 0 {
		return DefaultObjectLimit
	}
	return l.Object
}

// passing is how much of one object is read on for; 0 if none is passed.
func (l Limits) passing() int64 {
	if !l.Pass {
		return 0
	}
	return passes * min(max(int64(l.object()), DefaultObjectLimit), math.MaxInt64/passes)
}

func (l Limits) response() int64 {
	if l.Response <= 0 {
		return DefaultResponseLimit
	}
	return l.Response
}
