// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// inPages runs a test with lists in pages, and with streamed ones.
func inPages(t *testing.T, test func(t *testing.T, s *pooltest.Server, p *informerpool.Pool)) {
	t.Helper()
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists = paged; o.PageSize = 1 }, test)
		})
	}
}

// requireLagging requires an informer not to show what it listed.
func requireLagging(t *testing.T, l *informerpool.Lease) {
	t.Helper()
	require.False(t, l.HasSynced())
	require.ErrorContains(t, l.Status().LastError, "server lags behind what was shown")
}

// TestHazardListRevivesWhatAnotherWatchHasForgotten: of two servers behind a
// balancer, the one that answers the list lags. However long it does, the list
// is not shown while another informer follows a server that is ahead.
func TestHazardListRevivesWhatAnotherWatchHasForgotten(t *testing.T) {
	inPages(t, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		ahead := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		pooltest.After(10 * time.Second)
		s.Delete("ns", "a")
		synctest.Wait()
		require.Len(t, pooltest.Contents(t, ahead), 1)

		s.Set(func(s *pooltest.Server) { s.Lag = 1 })
		late := pooltest.Acquire(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, late)
		for range 4 {
			s.Speak(1)
			requireLagging(t, late)
		}
		s.Set(func(s *pooltest.Server) { s.Lag = 0 })
		require.NoError(t, late.WaitForSync(context.Background()))
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, late))
		require.Equal(t, []string{"Added ns/b@102"}, r.Take())
		require.Zero(t, late.Status().Rollbacks+ahead.Status().Rollbacks)
	})
}

// TestHazardListRevivesWhatAnEndedWatchHasForgotten: what no informer shows any
// more counts for half a minute, since nothing would show that the server was
// restored meanwhile.
func TestHazardListRevivesWhatAnEndedWatchHasForgotten(t *testing.T) {
	inPages(t, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		ended := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		s.Put("ns", "a", 2)
		synctest.Wait()
		ended.ReleaseNow()
		synctest.Wait()
		s.Set(func(s *pooltest.Server) { s.Lag = 1 })
		l := pooltest.Acquire(t, p, pooltest.Everything)
		pooltest.After(20 * time.Second)
		requireLagging(t, l)
		pooltest.After(time.Minute)
		require.True(t, l.HasSynced(), l.Status().LastError)
	})
}

// TestHazardRestoredServerIsTakenForALaggingOne: an informer that cannot find
// out that its server was restored does not keep others from it.
func TestHazardRestoredServerIsTakenForALaggingOne(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
			inPages(t, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				before := pooltest.Copy(s)
				old := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
				s.Put("ns", "b", 1)
				pooltest.After(10 * time.Second)
				if refused {
					s.Set(func(s *pooltest.Server) {
						s.Refuse = func(k informerpool.Key) error {
							if k.Namespace == "" {
								return nil
							}
							return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
						}
					})
					s.Cut(io.ErrUnexpectedEOF)
					pooltest.After(time.Second)
				}
				s.Restore(before, 0)
				l := pooltest.Acquire(t, p, pooltest.Everything)
				pooltest.After(time.Minute)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				if !refused {
					require.Equal(t, s.State(nil), pooltest.Contents(t, old))
				}
			})
		})
	}
}
