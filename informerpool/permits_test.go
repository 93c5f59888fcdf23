// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestListsTakeTurns: the next list begins when one ends, and a wait that is
// given up takes no turn.
func TestListsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(1, time.Hour)
		release, err := p.Take(t.Context())
		require.NoError(t, err)
		require.False(t, p.Busy())

		tired := errors.New("tired")
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := p.Take(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		require.True(t, p.Busy())
		cancel(tired)
		require.ErrorIs(t, <-gaveUp, tired)
		require.False(t, p.Busy())

		release()
		release() // may be repeated
		next, err := p.Take(t.Context())
		require.NoError(t, err)
		next()
	})
}

// TestHazardHungListsUseUpThePermits: a permit counts for a limited time.
func TestHazardHungListsUseUpThePermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(1, time.Second)
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
