// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package counting gives versions to the objects of clients that keep none, as
// client-go's fakes do.
//
// # Tests
//
// The leading test is TestVersionsGrowWithTheContent.
// TestHazardNamesComeAndGoWithoutEnd covers memory.
package counting

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Versions counts the states of the objects of one informer whose server does
// not. Each informer has its own counters, because two streams of the same
// changes are not read at the same pace.
type Versions struct {
	mu    sync.Mutex // protects the fields below
	on    bool
	last  uint64
	seen  map[types.NamespacedName]version
	lives map[types.NamespacedName]int // how often an object of that name was deleted
	past  int                          // at least the highest such count of the names that were dropped
}

// New returns counters that are off until Count.
func New() *Versions {
	return &Versions{seen: map[types.NamespacedName]version{}, lives: map[types.NamespacedName]int{}}
}

// Clone returns counters that count on from the same states.
func (v *Versions) Clone() *Versions {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &Versions{on: v.on, last: v.last, seen: maps.Clone(v.seen), lives: maps.Clone(v.lives), past: v.past}
}

// maxLives is how many names of deleted objects are kept.
const maxLives = 10_000

// Count records that the server keeps no versions.
func (v *Versions) Count() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.on = true
}

// Counting reports whether the server keeps no versions.
func (v *Versions) Counting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.on
}

type version struct {
	hash uint64
	rv   uint64
	uid  types.UID
}

// Current returns the version of the newest state.
func (v *Versions) Current() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strconv.FormatUint(v.last, 10)
}

// Stamp gives the object a resourceVersion that grows when its content changes,
// and a uid if it has none. It reports whether the content is new: fakes begin
// a watch with the existing objects.
func (v *Versions) Stamp(u *unstructured.Unstructured) (news bool) {
	if !v.Counting() {
		return true
	}
	content, err := u.MarshalJSON()
	if err != nil {
		return true // the store will refuse an object that cannot be encoded, and count it
	}
	h := fnv.New64a()
	_, _ = h.Write(content)
	v.mu.Lock()
	defer v.mu.Unlock()

	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	s, known := v.seen[key]
	news = !known || s.hash != h.Sum64()
	if news {
		v.last++
		if !known {
			s.uid = types.UID(fmt.Sprintf("%s#%d", key, v.past+v.lives[key]))
		}
		s.hash, s.rv = h.Sum64(), v.last
		v.seen[key] = s
	}

	if u.GetUID() == "" {
		u.SetUID(s.uid)
	}
	u.SetResourceVersion(strconv.FormatUint(s.rv, 10))

	return news
}

// Peek gives the object the version and uid that Stamp would, but does not
// record new content: its event may be on its way.
func (v *Versions) Peek(u *unstructured.Unstructured) {
	content, err := u.MarshalJSON()
	if err != nil {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write(content)
	v.mu.Lock()
	defer v.mu.Unlock()

	s, known := v.seen[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}]
	if !known || s.hash != h.Sum64() {
		s.rv = v.last + 1
	}
	if u.GetUID() == "" {
		u.SetUID(cmp.Or(s.uid, "new"))
	}
	u.SetResourceVersion(strconv.FormatUint(s.rv, 10))
}

// Deleted gives a deleted object its last version, which is newer than all
// before, and drops it.
func (v *Versions) Deleted(u *unstructured.Unstructured) {
	if !v.Counting() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()

	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	v.last++
	if u.GetUID() == "" {
		u.SetUID(v.seen[key].uid)
	}
	u.SetResourceVersion(strconv.FormatUint(v.last, 10))
	delete(v.seen, key)
	if v.lives[key]++; len(v.lives) <= maxLives {
		return
	}
	most := 0
	for _, n := range v.lives {
		most = max(most, n)
	}
	v.past += most // so that no name gets a number again
	clear(v.lives)
}
