// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"runtime"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// Codec packs the objects of a fleet and holds the data they share. It is safe
// for concurrent use. No method blocks except on short locks.
type Codec struct {
	// DropManagedFields makes Pack omit metadata.managedFields. It must not
	// change once the codec is in use.
	DropManagedFields bool

	mu    sync.RWMutex // protects kinds
	kinds map[schema.GroupVersionKind]weak.Pointer[Kind]
}

// NewCodec returns an empty codec.
func NewCodec() *Codec {
	return &Codec{kinds: make(map[schema.GroupVersionKind]weak.Pointer[Kind])}
}

// Kind returns the codec's data about one kind. While anything refers to a
// Kind, as every object of the kind does, the same argument yields the same
// pointer. Unused Kinds are dropped, because definitions come and go.
func (c *Codec) Kind(gvk schema.GroupVersionKind) *Kind {
	c.mu.RLock()
	k := c.kinds[gvk].Value()
	c.mu.RUnlock()

	if k != nil {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k = c.kinds[gvk].Value(); k == nil {
		k = newKind(gvk)
		c.kinds[gvk] = weak.Make(k)
		runtime.AddCleanup(k, c.drop, gvk)
	}

	return k
}

// drop removes a kind to which nothing refers any more.
func (c *Codec) drop(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[gvk].Value() == nil { // it may have been requested again meanwhile
		delete(c.kinds, gvk)
	}
}

// Kind is one kind of objects, with its name and its dictionary.
type Kind struct {
	gvk        schema.GroupVersionKind
	apiVersion string
	members    []byte // apiVersion and kind, as JSON members
	dict       trainer
}

func newKind(gvk schema.GroupVersionKind) *Kind {
	k := &Kind{gvk: gvk, apiVersion: gvk.GroupVersion().String()}
	k.members = appendQuoted([]byte(`"apiVersion":`), k.apiVersion)
	k.members = appendQuoted(append(k.members, `,"kind":`...), gvk.Kind)
	return k
}

// GVK returns the kind's name.
func (k *Kind) GVK() schema.GroupVersionKind { return k.gvk }

// check refuses an item of another kind, which would be unpacked under the
// wrong kind.
func (k *Kind) check(it *wire.Item) error {
	if !it.HasMetadata() {
		return &wire.FieldError{Field: "metadata", Reason: "is missing"}
	}
	return wire.Expect{APIVersion: k.apiVersion, Kind: k.gvk.Kind}.CheckKind(*it)
}
