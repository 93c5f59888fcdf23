// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// TestSharedTextsCountFromTheFirstToTheLast: unused texts are not shared, and a
// text is not kept after its last object.
func TestSharedTextsCountFromTheFirstToTheLast(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var s Shared
	pack := func(name, label string) *Object {
		it, err := wire.Scan(fmt.Appendf(nil,
			`{"metadata":{"name":%q,"labels":{"app":%q},"ownerReferences":[{"uid":%q}]}}`, name, label, label))
		require.NoError(t, err)
		o, err := c.PackShared(k, it, &s)
		require.NoError(t, err)
		return o
	}
	first := pack("first", "app-0")
	keepApart(first.labels, first.owners)
	var stored []*Object
	for i := range 5000 {
		o := pack(fmt.Sprint(i), fmt.Sprint("app-", i/5))
		s.Retain(o)
		stored = append(stored, o)
	}
	require.Same(t, stored[0].labels, stored[4].labels)
	require.NotSame(t, stored[4].labels, stored[5].labels)
	require.Less(t, s.bytes, int64(2*1300*100), "five objects have each text")
	for i, o := range stored {
		if i%5 != 4 {
			s.Release(o)
		}
	}
	require.Positive(t, s.bytes, "the last one still has them")
	for i, o := range stored {
		if i%5 == 4 {
			s.Release(o)
		}
	}
	require.Zero(t, s.bytes)
	require.Zero(t, s.texts)
	for _, slot := range s.slots {
		require.Nil(t, slot)
	}

	huge := pack("huge", strings.Repeat("x", 1<<20))
	require.Greater(t, huge.Size(), 2<<20)
	require.Less(t, huge.OwnSize(), 1000)
	s.Retain(huge)
	require.Greater(t, s.bytes, int64(2<<20))
	s.Release(huge)
	require.Zero(t, s.bytes)
}

// keepApart finds a seed with which each text has its own slot in the smallest
// table. With other seeds a newer text may displace an older one.
func keepApart(texts ...*text) {
	s := Shared{slots: make([]*text, minSlots)}
	for taken := map[int]bool{}; len(taken) < len(texts); {
		clear(taken)
		internSeed = maphash.MakeSeed()
		for _, t := range texts {
			taken[s.slot(maphash.String(internSeed, t.json))] = true
		}
	}
}
