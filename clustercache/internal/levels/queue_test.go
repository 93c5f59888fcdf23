// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package levels_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/levels"
)

// TestAKeyWaitsOnce: a change is delivered after the one that waits, in its
// place, and a key is initial only if nothing has changed.
func TestAKeyWaitsOnce(t *testing.T) {
	var hub levels.Hub[string]
	q := levels.NewQueue[string]()
	hub.Publish("lost")
	hub.Subscribe(q)
	require.True(t, hub.Any())
	q.Put("a", true)
	q.Put("b", true)
	hub.Publish("c", "a", "c")
	q.Put("a", true)

	for _, want := range []struct {
		key     string
		initial bool
	}{{"a", false}, {"b", true}, {"c", false}} {
		key, initial, ok := q.Next(t.Context())
		require.True(t, ok)
		require.Equal(t, want.key, key)
		require.Equal(t, want.initial, initial)
	}
	hub.Publish("a")
	key, initial, _ := q.Next(t.Context())
	require.Equal(t, "a", key, "changed since it was taken")
	require.False(t, initial)
	hub.Unsubscribe(q)
	require.False(t, hub.Any())
}

// TestPauseKeepsTheKeys: they are delivered when it ends, and Next returns when
// its context does.
func TestPauseKeepsTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := levels.NewQueue[int]()
		q.Pause(true)
		q.Put(1, false)
		taken := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, _, ok := q.Next(ctx); ok; _, _, ok = q.Next(ctx) {
				taken++
			}
		}()
		synctest.Wait()
		require.Zero(t, taken)

		q.Pause(false)
		synctest.Wait()
		require.Equal(t, 1, taken)
		cancel()
		<-ended
	})
}
