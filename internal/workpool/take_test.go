// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package workpool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/workpool"
)

// TestTurnsAreTaken: the next turn begins when one ends, and a wait that is
// given up takes no turn.
func TestTurnsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := workpool.NewLearning(1, time.Hour)
		release, err := p.Take(t.Context())
		require.NoError(t, err)
		require.False(t, p.Waiting())

		tired := errors.New("tired")
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := p.Take(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		require.True(t, p.Waiting())
		cancel(tired)
		require.ErrorIs(t, <-gaveUp, tired)
		require.False(t, p.Waiting())

		release()
		release() // may be repeated
		next, err := p.Take(t.Context())
		require.NoError(t, err)
		next()
	})
}

// TestHazardHungListsUseUpThePermits: a turn counts for a limited time.
func TestHazardHungListsUseUpThePermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := workpool.NewLearning(1, time.Second)
		hung, err := p.Take(t.Context())
		require.NoError(t, err)
		defer hung()
		began := time.Now()
		next, err := p.Take(t.Context())
		require.NoError(t, err)
		defer next()
		require.Less(t, time.Since(began), 2*time.Second)
	})
}
