// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// maxBytes bounds the approximate number of bytes in which an audit remembers
// the changes that arrive while it runs. changeBytes is the memory for each
// change besides its name and version.
const (
	maxBytes    = 4 << 20
	changeBytes = 100
)

// Changes hold the last version of each object that a stream has changed while
// an audit runs.
type Changes struct {
	versions map[types.NamespacedName]string
	bytes    int
	over     bool // there were more
}

// Note records a change, unless c is nil because no audit is running.
func (c *Changes) Note(o *packed.Object) {
	if c == nil || c.over {
		return
	}
	name := store.NameOf(o)
	if _, known := c.versions[name]; !known {
		c.bytes += changeBytes + len(name.Namespace) + len(name.Name) + len(o.GetResourceVersion())
	}
	c.versions[name] = o.GetResourceVersion()
	if c.bytes > maxBytes {
		c.over, c.versions = true, nil
	}
}

// NewChanges returns changes to record in.
func NewChanges() *Changes { return &Changes{versions: map[types.NamespacedName]string{}} }

// Over reports whether there were more changes than are remembered.
func (c *Changes) Over() bool { return c.over }

// Version returns the last version that the stream has brought of an object,
// and whether it has brought any.
func (c *Changes) Version(name types.NamespacedName) (version string, touched bool) {
	version, touched = c.versions[name]
	return version, touched
}
