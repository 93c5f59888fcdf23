// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
)

var errDown = errors.New("unreachable")

// TestWaitsGrowToTheLimitAndBeginAnewAfterSuccess: each is jittered by half.
func TestWaitsGrowToTheLimitAndBeginAnewAfterSuccess(t *testing.T) {
	b := backoff.Backoff{Limit: 30 * time.Second}
	expect := func(longest time.Duration) {
		t.Helper()
		wait := b.After(time.Second, errDown)
		require.GreaterOrEqual(t, wait, longest/2)
		require.LessOrEqual(t, wait, longest)
	}
	for _, longest := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		expect(longest * time.Millisecond)
	}

	require.Less(t, b.After(backoff.Healthy, errDown), time.Second, "a working watch is resumed at once")
	expect(500 * time.Millisecond)
	expect(time.Second)
	b.Reset()
	expect(500 * time.Millisecond)
}

// TestHazardServerAsksForAnEndlessWait: Retry-After prolongs a wait, within
// bounds; a busy server is asked again soon.
func TestHazardServerAsksForAnEndlessWait(t *testing.T) {
	b := backoff.Backoff{Limit: 30 * time.Second}
	require.GreaterOrEqual(t, b.After(0, apierrors.NewTooManyRequests("busy", 7)), 7*time.Second)
	require.LessOrEqual(t, b.After(0, apierrors.NewTooManyRequests("busy", 1<<30)), time.Hour)

	b.Reset()
	for range 20 {
		require.LessOrEqual(t, b.After(0, apierrors.NewTooManyRequestsError("busy")), 4*time.Second)
	}
}

// TestKickCutsAWaitShort: a kick resets the back-off and a nudge does not; one
// that comes before the wait is not lost.
func TestKickCutsAWaitShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := backoff.NewWaker()
		began := time.Now()
		w.Kick()
		w.Kick()
		require.True(t, w.Sleep(t.Context(), time.Hour))
		w.Nudge()
		require.False(t, w.Sleep(t.Context(), time.Hour))
		require.Zero(t, time.Since(began))

		require.False(t, w.Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, w.Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour, time.Since(began))
	})
}
