// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package callback_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/callback"
)

func TestGoroutineIsOneGoroutinesOwn(t *testing.T) {
	id := callback.Goroutine()
	require.NotZero(t, id)
	require.Equal(t, id, callback.Goroutine())
	var other uint64
	var done sync.WaitGroup
	done.Go(func() { other = callback.Goroutine() })
	done.Wait()
	require.NotZero(t, other)
	require.NotEqual(t, id, other)
}
