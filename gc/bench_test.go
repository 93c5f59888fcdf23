// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

func BenchmarkDeclareIdenticalSet(b *testing.B) {
	for _, n := range []int{1, 5, 50} {
		b.Run(fmt.Sprintf("resources=%d", n), func(b *testing.B) {
			c, err := gc.New(gc.Options[int, int]{Release: func(int) {}})
			require.NoError(b, err)
			uses := make([]int, n)
			for i := range uses {
				uses[i] = i
			}
			_, err = c.Declare(b.Context(), 1, uses...)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Declare(b.Context(), 1, uses...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDeclareAndDrop(b *testing.B) {
	c, err := gc.New(gc.Options[int, int]{Release: func(int) {}})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Declare(b.Context(), 1, 1, 2, 3, 4, 5); err != nil {
			b.Fatal(err)
		}
		c.Drop(1)
	}
}

func BenchmarkSweep(b *testing.B) {
	const owners, each = 10_000, 5
	c, err := gc.New(gc.Options[int, int]{
		Release: func(int) {},
		InUse:   func(context.Context, int) (bool, error) { return true, nil },
		Rate:    math.Inf(1),
	})
	require.NoError(b, err)
	for o := range owners {
		var uses [each]int
		for i := range uses {
			uses[i] = (o + i) % (owners / 10)
		}
		_, err := c.Declare(b.Context(), o, uses[:]...)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Sweep(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(owners*float64(b.N)/b.Elapsed().Seconds(), "owners/s")
}

func BenchmarkSnapshot(b *testing.B) {
	c, err := gc.New(gc.Options[int, int]{Release: func(int) {}})
	require.NoError(b, err)
	for o := range 10_000 {
		_, err := c.Declare(b.Context(), o, o, o+1, o+2, o+3, o+4)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Snapshot()
	}
}
