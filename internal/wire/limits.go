// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Defaults of [Limits].
const (
	// DefaultObjectLimit is twice what etcd accepts in one request by default.
	DefaultObjectLimit = 3 << 20
	// DefaultResponseLimit bounds one list page.
	DefaultResponseLimit = 1 << 30
	// MaxDepth is how deep objects and arrays may nest, as in encoding/json.
	MaxDepth = 10000
)

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
}

func (l Limits) object() int {
	if l.Object <= 0 {
		return DefaultObjectLimit
	}
	return l.Object
}

func (l Limits) response() int64 {
	if l.Response <= 0 {
		return DefaultResponseLimit
	}
	return l.Response
}
