// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestWaitForSeesEachChange: the condition is looked at again after each event,
// and may use the lease.
func TestWaitForSeesEachChange(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		has := func() bool { _, err := l.Get("ns", "b"); return err == nil }
		done := make(chan error, 1)
		go func() { done <- l.WaitFor(context.Background(), has) }()
		s.Put("ns", "a", 1)
		synctest.Wait()
		require.Empty(t, done)
		s.Put("ns", "b", 1)
		require.NoError(t, <-done)
		require.NoError(t, l.WaitFor(context.Background(), has))

		never := func() bool { return false }
		ended, cancel := context.WithCancelCause(t.Context())
		go func() { done <- l.WaitFor(ended, never) }()
		cause := errors.New("enough")
		cancel(cause)
		require.ErrorIs(t, <-done, cause)
		go func() { done <- l.WaitFor(context.Background(), never) }()
		synctest.Wait()
		l.Release()
		require.ErrorIs(t, <-done, informerpool.ErrReleased)
	})
}
