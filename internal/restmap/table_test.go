// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
)

// Len returns how many distinct documents are in use. A cluster has two, one
// for the core group and one for all others.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.entries)
}

// TestManyClustersChangingAtOnceStayApart: however many clusters change at
// once, each mapper reflects its own cluster, and the table counts the
// references correctly.
func TestManyClustersChangingAtOnceStayApart(t *testing.T) {
	table := NewTable()
	const clusters = 16
	mappers := make([]*Mapper, clusters)
	var workers sync.WaitGroup
	for i := range clusters {
		c := newCluster(t)
		m := c.mapper(table)
		mappers[i] = m
		random := rand.New(rand.NewPCG(1, uint64(i)))
		workers.Go(func() {
			for range 50 {
				variant := random.IntN(3)
				c.serve(variantOf(variant))
				if err := m.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
				for other := range 3 {
					if _, ok := m.Cached(gvkOf("example.org", "v1",
						fmt.Sprintf("Kind%d", other))); ok != (other == variant) {
						t.Errorf("kind %d of variant %d: %v", other, variant, ok)
					}
				}
			}
		})
	}
	workers.Wait()

	uses := map[*entry]int{}
	for _, m := range mappers {
		uses[m.uses.core]++
		uses[m.uses.apis]++
	}
	require.Len(t, table.entries, len(uses))
	for _, e := range table.entries {
		require.Equal(t, uses[e], e.uses)
		require.Len(t, e.etags, 1)
	}
	runtime.KeepAlive(mappers)
}

func variantOf(i int) discoveryv2.APIGroupDiscovery {
	return served("example.org", versioned("v1", resourceOf(fmt.Sprintf("kind%ds", i), fmt.Sprintf("Kind%d", i), true)))
}

func TestDocumentIsKnownByFewETags(t *testing.T) {
	table := NewTable()
	c := newCluster(t)
	m := c.mapper(table)
	for i := range 3 * maxETags { // only fields change that we do not keep
		r := resourceOf("widgets", "Widget", true)
		r.Verbs = []string{fmt.Sprintf("verb%d", i)}
		c.serve(served("example.org", versioned("v1", r)))
		require.NoError(t, m.Refresh(t.Context()))
	}
	require.Equal(t, 2, table.Len())
	require.Len(t, table.etags, 1+maxETags)
	runtime.KeepAlive(m)
}
