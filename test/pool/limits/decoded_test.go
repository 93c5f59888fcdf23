// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// poolOf returns a pool whose server has n Pods, and a lease that has synced.
func poolOf(t *testing.T, n int, rest func(i int) string) (*informerpool.Pool, *informerpool.Lease) {
	t.Helper()
	i := 0
	source := &pooltest.Generated{Next: func() []byte {
		i++
		switch {
		case i <= n:
			return pooltest.PodFrame(i, "ns", rest(i))
		case i == n+1:
			return pooltest.EndOfList()
		}
		return nil // a stream that went on would leave garbage between a collection and its measurement
	}}
	p, err := informerpool.New(informerpool.Options{Source: source, DecodedBytes: 8 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p, pooltest.AcquireSynced(t, p, pooltest.AnyKind)
}

// read reads objects into Pods, each object the given number of times.
func read(t *testing.T, l *informerpool.Lease, n, times int) {
	t.Helper()
	for i := range n {
		for range times {
			require.NoError(t, l.GetInto("ns", fmt.Sprint("object-", i+1), &corev1.Pod{}))
		}
	}
}

// TestHazardObjectsOfEndedInformersAreKept: the cache that served their reads
// must not keep them.
func TestHazardObjectsOfEndedInformersAreKept(t *testing.T) {
	for _, times := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			const objects = 60
			before := pooltest.LiveHeap()
			p, l := poolOf(t, objects,
				func(i int) string { return `,"annotations":{"a":"` + pooltest.Noise(i, 400_000) + `"}}}` })
			require.Greater(t, pooltest.LiveHeap()-before, int64(9<<20))
			read(t, l, objects, times)
			l.ReleaseNow()
			require.Less(t, pooltest.LiveHeapUnder(before+1<<20)-before, int64(1<<20))
			runtime.KeepAlive(p)
		})
	}
}

// TestDecodedObjectsAreBoundedByWhatTheyWeigh: their JSON may be a hundredth of
// their size.
func TestDecodedObjectsAreBoundedByWhatTheyWeigh(t *testing.T) {
	const objects = 20
	_, l := poolOf(t, objects, func(int) string {
		return `},"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat("{},", 3000), ",") + `]}}`
	})
	before := pooltest.LiveHeap()
	read(t, l, objects, 3)
	require.Less(t, pooltest.LiveHeapUnder(before+12<<20)-before, int64(12<<20))
	runtime.KeepAlive(l)
}
