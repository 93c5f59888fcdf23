// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// maxTouched bounds the approximate number of bytes in which an audit remembers
// the changes that arrive while it runs. touchedBytes is the memory for each
// change besides its name and version.
const (
	maxTouched   = 4 << 20
	touchedBytes = 100
)

// touched holds the last versions that the stream has brought of objects.
type touched struct {
	versions map[types.NamespacedName]string
	bytes    int
	over     bool // there were more
}

// note records a change, unless t is nil because no audit is running.
func (t *touched) note(o *Object) {
	if t == nil || t.over {
		return
	}
	name := store.NameOf(o)
	if _, known := t.versions[name]; !known {
		t.bytes += touchedBytes + len(name.Namespace) + len(name.Name) + len(o.GetResourceVersion())
	}
	t.versions[name] = o.GetResourceVersion()
	if t.bytes > maxTouched {
		t.over, t.versions = true, nil
	}
}
