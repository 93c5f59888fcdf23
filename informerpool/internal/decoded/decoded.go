// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package decoded caches typed objects that are read repeatedly.
package decoded

import (
	"reflect"
	"runtime"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"

	"github.com/fleetcache/fleetcache/internal/packed"
)

const (
	// maxDecoded and maxGhosts bound the number of entries, which is all that
	// the lru library bounds.
	maxDecoded = 1 << 16
	maxGhosts  = 1 << 12
	// decodedFactor is the minimum memory that a typed object is assumed to
	// take, relative to its JSON: the real factor is 2.1 for a Pod and 2.8 for
	// a Deployment.
	decodedFactor = 3
	// decodedBytes is the memory of a cache entry besides its object.
	decodedBytes = 512
)

// Cache holds typed objects that were read more than once: copying an
// object takes a quarter of the time of decoding it. An object enters the cache
// on its second read, so that a pass over all objects neither fills the cache
// nor pays for it.
//
// The cache keeps no packed object alive, and a decoded object only as long as
// the packed object it was made of: it is dropped when the informer replaces
// that object or ends.
type Cache struct {
	limit  int64
	ghosts *lru.Cache // keys read once

	mu    sync.Mutex // protects the fields below
	bytes int64
	hot   *lru.Cache
}

type key struct {
	object weak.Pointer[packed.Object]
	form   reflect.Type
}

type entry struct {
	object  kruntime.Object
	size    int64
	cleanup runtime.Cleanup // of the entry, when the packed object is gone
}

// New returns a cache of so many bytes; none caches nothing.
func New(limit int64) *Cache {
	c := &Cache{limit: limit}
	if limit > 0 {
		c.ghosts = lru.New(maxGhosts)
		c.hot = lru.NewWithEvictionFunc(maxDecoded, func(_ lru.Key, value any) {
			v := value.(entry)
			c.bytes -= v.size
			v.cleanup.Stop() // objects that come and go must not accumulate them
		})
	}

	return c
}

func (c *Cache) get(k key) (kruntime.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	v, ok := c.hot.Get(k)
	if !ok {
		return nil, false
	}
	return v.(entry).object, true
}

// again reports whether the key was requested before, and remembers it.
func (c *Cache) again(k key) bool {
	_, seen := c.ghosts.Get(k)
	if seen {
		c.ghosts.Remove(k)
	} else {
		c.ghosts.Add(k, nil)
	}
	return seen
}

func (c *Cache) add(o *packed.Object, k key, v entry) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if _, ok := c.hot.Get(k); ok || v.size > c.limit/4 {
		return
	}
	v.cleanup = runtime.AddCleanup(o, c.drop, k)
	c.hot.Add(k, v)
	c.bytes += v.size
	for c.bytes > c.limit {
		c.hot.RemoveOldest()
	}
}

// drop removes a decoded object.
func (c *Cache) drop(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hot.Remove(k)
}

// Decode decodes o into dst, which the caller owns. Typed objects that are read
// repeatedly are copied from the cache.
func (c *Cache) Decode(o *packed.Object, dst kruntime.Object) error {
	if c.limit <= 0 || !typed(dst) {
		return o.Into(dst)
	}
	k := key{object: weak.Make(o), form: reflect.TypeOf(dst)}
	if hot, ok := c.get(k); ok {
		set(dst, hot.DeepCopyObject())
		return nil
	}
	if !c.again(k) {
		return o.Into(dst)
	}
	fresh, ok := reflect.TypeAssert[kruntime.Object](reflect.New(k.form.Elem()))
	if !ok {
		return o.Into(dst)
	}
	if err := o.Into(fresh); err != nil {
		return err
	}
	size := max(weigh(fresh, c.limit), int64(decodedFactor*len(o.AppendJSON(nil)))) + decodedBytes
	c.add(o, k, entry{object: fresh, size: size})
	set(dst, fresh.DeepCopyObject())

	return nil
}

// set makes the value that dst points to a shallow copy of src's, which nothing
// else refers to.
func set(dst, src kruntime.Object) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

// typed reports whether a decoded form is worth caching: copying the others
// takes as long as decoding them.
func typed(o kruntime.Object) bool {
	switch o.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return false
	}
	return true
}
