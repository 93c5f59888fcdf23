// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestAKeyWaitsOnce: a change is delivered after the one that waits, in its
// place, and a key is initial only if nothing has changed.
func TestAKeyWaitsOnce(t *testing.T) {
	var hub levelHub[string]
	q := newLevelQueue[string]()
	hub.publish("lost")
	hub.subscribe(q)
	require.True(t, hub.any())
	q.put("a", true)
	q.put("b", true)
	hub.publish("c", "a", "c")
	q.put("a", true)

	for _, want := range []struct {
		key     string
		initial bool
	}{{"a", false}, {"b", true}, {"c", false}} {
		got, ok := next(t.Context(), q.changed, q.take)
		require.True(t, ok)
		require.Equal(t, want.key, got.key)
		require.Equal(t, want.initial, got.initial)
	}
	hub.publish("a")
	got, _ := next(t.Context(), q.changed, q.take)
	require.Equal(t, "a", got.key, "changed since it was taken")
	require.False(t, got.initial)
	hub.unsubscribe(q)
	require.False(t, hub.any())
}

// TestPauseKeepsTheKeys: they are delivered when it ends, and Next returns when
// its context does.
func TestPauseKeepsTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLevelQueue[int]()
		q.pause(true)
		q.put(1, false)
		taken := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, ok := next(ctx, q.changed, q.take); ok; _, ok = next(ctx, q.changed, q.take) {
				taken++
			}
		}()
		synctest.Wait()
		require.Zero(t, taken)

		q.pause(false)
		synctest.Wait()
		require.Equal(t, 1, taken)
		cancel()
		<-ended
	})
}
