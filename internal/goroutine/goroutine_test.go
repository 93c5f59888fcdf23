// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package goroutine_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/goroutine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIDIsOneGoroutinesOwn(t *testing.T) {
	id := goroutine.ID()
	require.NotZero(t, id)
	require.Equal(t, id, goroutine.ID())
	var other uint64
	var done sync.WaitGroup
	done.Go(func() { other = goroutine.ID() })
	done.Wait()
	require.NotZero(t, other)
	require.NotEqual(t, id, other)
}
