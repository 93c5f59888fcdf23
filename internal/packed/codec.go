// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// Codec packs the objects of a fleet and holds what they share. It is safe for
// concurrent use; no method blocks but for short locks.
type Codec struct {
	shared interner

	mu    sync.RWMutex // protects kinds
	kinds map[schema.GroupVersionKind]*Kind
}

// NewCodec returns an empty codec.
func NewCodec() *Codec {
	return &Codec{kinds: make(map[schema.GroupVersionKind]*Kind)}
}

// Kind returns what the codec holds for one kind; the pointer is the same for
// every call with the same argument.
func (c *Codec) Kind(gvk schema.GroupVersionKind) *Kind {
	c.mu.RLock()
	k := c.kinds[gvk]
	c.mu.RUnlock()
	if k != nil {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k = c.kinds[gvk]; k == nil {
		k = newKind(gvk)
		c.kinds[gvk] = k
	}
	return k
}

// Kind is one kind of objects: its name and its dictionary.
type Kind struct {
	gvk    schema.GroupVersionKind
	prefix string // how the JSON of each object begins, up to its metadata's members
	dict   trainer
}

func newKind(gvk schema.GroupVersionKind) *Kind {
	b := append([]byte(nil), `{"apiVersion":`...)
	b = appendQuoted(b, gvk.GroupVersion().String())
	b = append(b, `,"kind":`...)
	b = appendQuoted(b, gvk.Kind)
	b = append(b, `,"metadata":{`...)
	return &Kind{gvk: gvk, prefix: string(b)}
}

// GVK returns the kind's name.
func (k *Kind) GVK() schema.GroupVersionKind { return k.gvk }

// check refuses an item of another kind: it would come back under a false name.
func (k *Kind) check(it *wire.Item) error {
	e := wire.Expect{APIVersion: k.gvk.GroupVersion().String(), Kind: k.gvk.Kind}
	switch {
	case it.Kind != "" && it.Kind != e.Kind, it.APIVersion != "" && it.APIVersion != e.APIVersion:
		return e.Check(*it)
	case !it.HasMetadata():
		return &wire.FieldError{Field: "metadata", Reason: "is missing"}
	}
	return nil
}
