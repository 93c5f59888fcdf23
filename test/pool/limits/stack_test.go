// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// deep is a source whose bodies need as much stack as those of a connection.
type deep struct{ pooltest.Scripted }

func (d *deep) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := d.Scripted.Watch(ctx, r)
	return deepBody{body}, err
}

type deepBody struct{ io.ReadCloser }

func (b deepBody) Read(p []byte) (int, error) {
	var frames [64]byte
	n, err := b.ReadCloser.Read(p)
	frames[n%len(frames)]++
	runtime.KeepAlive(&frames)
	return n, err
}

// TestIdleInformerTakesFourKilobytesOfStack: all that is below the read that
// blocks is less than a quarter of 8 KiB, so that the collector halves such a
// stack. An informer has needed more while it listed.
func TestIdleInformerTakesFourKilobytesOfStack(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector changes what a function needs")
	}
	const n = 500
	source := &deep{pooltest.Scripted{Listed: func() string { return pooltest.ListOf("WidgetList") }}}
	pool, err := informerpool.New(informerpool.Options{Source: source, PagedLists: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(context.Background())) }()
	before := stacks()
	for i := range n {
		l := pooltest.Acquire(t, pool, pooltest.In(fmt.Sprint(i)))
		require.NoError(t, l.WaitForSync(t.Context()))
	}

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Less(c, (stacks()-before)/n, 4700.0, "bytes for each")
	}, 10*time.Second, time.Millisecond)
}

func stacks() float64 {
	var m runtime.MemStats
	for range 4 { // each halves a stack
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.StackInuse)
}
