// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package decoded caches the decoded forms of objects that are read repeatedly.
//
// # Tests
//
// The leading test is TestRepeatedReadsShareNothing.
// TestHazardDecodedObjectsTakeMoreThanTheLimit covers memory,
// TestDetectorFindsWhoChangesASharedObject reads that share.
package decoded

import (
	"container/list"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// entryBytes is the memory of a cache entry besides its object.
const entryBytes = 512

// Cache holds decoded objects that are read more than once. A read copies such
// an object, which takes a quarter of the time of decoding it, or shares it.
//
// An object enters the cache on its second read, so that a pass over all
// objects neither fills the cache nor pays for it. A full cache takes it only
// if it is read more often than the entry that was not read for the longest
// time: objects that are read in turn, and have no room together, do not push
// one another out.
//
// The cache keeps no packed object alive, and a decoded object only as long as
// the packed object it was made of: it is dropped when the informer replaces
// that object or ends.
type Cache struct {
	limit int64
	// detect has each read of a cached object compare it with a fresh one.
	detect bool

	mu    sync.Mutex // protects the fields below
	reads frequencies
	bytes int64
	hot   map[key]*list.Element // of *entry
	order *list.List            // the one that was read last comes first
}

// key identifies a decoded form of an object that is in memory.
type key struct {
	hash uint64
	form reflect.Type
}

type entry struct {
	key     key
	made    weak.Pointer[packed.Object] // what it was decoded from
	object  kruntime.Object
	size    int64
	cleanup runtime.Cleanup // of the entry, when the packed object is gone
}

// New returns a cache of so many bytes; none caches nothing.
func New(limit int64) *Cache {
	c := &Cache{limit: limit}
	if limit > 0 {
		c.detect, _ = strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR"))
		c.hot, c.order = map[key]*list.Element{}, list.New()
	}
	return c
}

// Decode decodes o into dst, which the caller owns. Objects that are read
// repeatedly are copied from the cache.
func (c *Cache) Decode(o *packed.Object, dst kruntime.Object) error {
	return c.decode(o, dst, false)
}

// Share decodes o into dst like Decode, but dst may share maps, slices and
// pointers with the cache and with other readers, and must not be changed.
//
// If the environment variable KUBE_CACHE_MUTATION_DETECTOR is true, as for
// client-go's caches, each read of a cached object compares it with what it was
// made of, and panics if it was changed.
func (c *Cache) Share(o *packed.Object, dst kruntime.Object) error {
	return c.decode(o, dst, true)
}

func (c *Cache) decode(o *packed.Object, dst kruntime.Object, share bool) error {
	if c.limit <= 0 || !share && !typed(dst) {
		return o.Into(dst)
	}
	k := key{hash: hashOf(o), form: reflect.TypeOf(dst)}
	cached, worth := c.get(k, o)
	if cached != nil && c.detect {
		if err := unchanged(o, cached); err != nil {
			panic(err)
		}
	}

	switch {
	case cached != nil && share:
		set(dst, cached)
		return nil
	case cached != nil:
		set(dst, cached.DeepCopyObject())
		return nil
	case !worth:
		return o.Into(dst)
	}
	fresh, ok := reflect.TypeAssert[kruntime.Object](reflect.New(k.form.Elem()))
	if !ok {
		return o.Into(dst)
	}
	if err := o.Into(fresh); err != nil {
		return o.Into(dst) // whose error names it
	}
	if size := weigh(fresh, c.limit) + entryBytes; c.add(o, &entry{key: k, object: fresh, size: size}) && !share {
		fresh = fresh.DeepCopyObject()
	}
	set(dst, fresh)

	return nil
}

// get returns the decoded form of an object, if it is cached, and otherwise
// whether it is read often enough to be.
func (c *Cache) get(k key, o *packed.Object) (cached kruntime.Object, worth bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	reads := c.reads.count(k.hash, len(c.hot))
	if at, ok := c.hot[k]; ok {
		if e := entryOf(at); e.made.Value() == o {
			c.order.MoveToFront(at)
			return e.object, false
		}
	}
	if reads < 2 {
		return nil, false
	}
	oldest := c.order.Back()
	if oldest == nil || c.bytes+entryOf(oldest).size <= c.limit {
		return nil, true
	}
	// This read is counted; where all are read in turn, the oldest one's is due.
	return nil, reads > c.reads.of(entryOf(oldest).key.hash)+1
}

// add caches a decoded object, and reports whether it did.
func (c *Cache) add(o *packed.Object, e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if at, ok := c.hot[e.key]; ok {
		if entryOf(at).made.Value() == o { // of a read at the same time
			return false
		}
		c.removeLocked(at)
	}
	if e.size > c.limit/4 {
		return false
	}
	e.made = weak.Make(o)
	e.cleanup = runtime.AddCleanup(o, c.drop, e)
	c.hot[e.key] = c.order.PushFront(e)
	c.bytes += e.size
	for c.bytes > c.limit {
		c.removeLocked(c.order.Back())
	}

	return true
}

// drop removes an entry, if it is still cached.
func (c *Cache) drop(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if at, ok := c.hot[e.key]; ok && at.Value == e {
		c.removeLocked(at)
	}
}

func (c *Cache) removeLocked(at *list.Element) {
	e := entryOf(at)
	c.order.Remove(at)
	delete(c.hot, e.key)
	c.bytes -= e.size
	e.cleanup.Stop() // objects that come and go must not accumulate them
}

func entryOf(at *list.Element) *entry { return at.Value.(*entry) }

// unchanged returns an error if a decoded object is not what o decodes to.
func unchanged(o *packed.Object, cached kruntime.Object) error {
	fresh := reflect.New(reflect.TypeOf(cached).Elem()).Interface().(kruntime.Object)
	if err := o.Into(fresh); err != nil || equality.Semantic.DeepEqual(fresh, cached) {
		return err
	}
	return fmt.Errorf("a %T that is read without a copy (UnsafeDisableDeepCopy) was changed: %s/%s",
		cached, o.GetNamespace(), o.GetName())
}

// set makes the value that dst points to a shallow copy of src's.
func set(dst, src kruntime.Object) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

// typed reports whether copying a decoded form takes less time than decoding
// it.
func typed(o kruntime.Object) bool {
	switch o.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return false
	}
	return true
}
