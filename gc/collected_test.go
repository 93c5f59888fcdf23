// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

// TestCollectedIsCalledOnce: for each owner that was given up, by Run or by
// Sweep, after everything it used was freed, and for no owner that ended
// otherwise. A panic loses that call alone.
func TestCollectedIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		var w *world
		w = newWorld(t, func(o *gc.Options[string, string]) {
			o.Collected = func(owner string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, owner)
				if len(w.Uses(owner)) > 0 {
					t.Errorf("%s still uses something", owner)
				}
				if owner == "panics" {
					panic("oops")
				}
			}
		})
		w.inUse = func(_ context.Context, owner string) (bool, error) { return owner == "stays", nil }
		take := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(told)
			defer func() { told = nil }()
			return slices.Clone(told)
		}
		for _, owner := range []string{"goes", "stays", "drops", "empties", "panics"} {
			w.declare(owner, "a", "of "+owner)
		}
		w.Drop("drops")
		w.declare("empties")
		w.sweep()
		require.Empty(t, take(), "one look proves nothing")
		stop := w.run()
		time.Sleep(time.Hour)
		require.Equal(t, []string{"goes", "panics"}, take())
		require.Contains(t, w.logged(), "Collected panicked: oops")

		// It comes back, and is given up once more.
		w.declare("goes", "a")
		time.Sleep(time.Second)
		w.sweep()
		time.Sleep(grace)
		w.sweep()
		require.Equal(t, []string{"goes"}, take())
		time.Sleep(time.Hour)
		require.Empty(t, take())
		stop()
	})
}
