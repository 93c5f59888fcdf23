// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestDoubtedStateIsNotKeptAgain, while the server does not answer the list
// that is to replace it: the list of another informer of the resource has shown
// that its watches had dropped a change.
func TestDoubtedStateIsNotKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		s.Put("other", "w", 1)
		first := start(t, s, disk, nil)
		l := pooltest.AcquireSynced(t, first.pool, pooltest.In("ns"))
		pooltest.AcquireSynced(t, first.pool, pooltest.In("other"))
		s.Deafly(func() {
			s.Put("ns", "w1", 1000)
			s.Put("other", "w", 1000)
		})
		s.SendBookmark()
		time.Sleep(round)
		require.Equal(t, 13, disk.count())
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(k informerpool.Key) error {
				if k.Namespace == "ns" {
					return apierrors.NewTooManyRequests("", 1)
				}
				return nil
			}
		})
		s.Cut(apierrors.NewResourceExpired("too old"))
		time.Sleep(10 * round)
		require.Equal(t, 2, disk.count())
		s.Set(func(s *pooltest.Server) { s.Refuse = nil })
		time.Sleep(2 * round)
		require.Equal(t, 13, disk.count(), "a list ends the doubt")
		require.Equal(t, s.State(func(o pooltest.Object) bool { return o.Namespace == "ns" }), pooltest.Contents(t, l))
		first.stop()
	})
}

// TestStateThatIsOverIsNotKeptAgain, while the user's function is called with
// that.
func TestStateThatIsOverIsNotKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, func(o *informerpool.Options, _ *persist.Options) {
			o.OnRollback = func(informerpool.Key) { time.Sleep(3 * round) }
		})
		defer first.stop()
		first.synced()
		time.Sleep(round)
		before := pooltest.NewServer()
		before.Put("ns", "w1", 0)
		s.Restore(before, 0)
		s.Cut(nil)
		time.Sleep(2 * round)
		require.Zero(t, disk.count())
	})
}

// TestStateThatAnotherInformerDisprovesIsNotUsed: the server was restored, and
// has come further since. Its watch does not show that, and another informer of
// the resource, which has listed, does.
func TestStateThatAnotherInformerDisprovesIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		s.Set(func(s *pooltest.Server) { s.Version += 10 })
		replace(s, "w1", func(o *pooltest.Object) { o.Value, o.Version = 1000, s.Version-5 })
		s.Put("ns", "w2", 1000)

		second := start(t, s, disk, nil)
		defer second.stop()
		narrow := pooltest.Everything
		narrow.FieldSelector = "metadata.name=w1"
		seen := pooltest.AcquireSynced(t, second.pool, narrow)
		defer seen.ReleaseNow()
		l := second.synced()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, int64(0), second.pool.Totals().Restores)
		require.Equal(t, int64(0), second.pool.Totals().Rollbacks, "the server's history is the one that was shown")
	})
}

// TestStateIsNotShownAfterAStreamThatProvedNothing: the server accepted the
// watch, and broke it before it brought what had changed. A state that was
// proven before is trusted as any that was listed then.
func TestStateIsNotShownAfterAStreamThatProvedNothing(t *testing.T) {
	for _, changed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, disk := filled(5), newMemory()
			first := start(t, s, disk, nil)
			first.synced()
			first.stop()
			s.Set(func(s *pooltest.Server) { s.Version++ })
			if changed {
				s.Delete("ns", "w1")
			}
			late(s, -1)
			time.Sleep(time.Hour)

			second := start(t, s, disk, nil)
			l := pooltest.Acquire(t, second.pool, pooltest.Everything)
			time.Sleep(time.Second)
			s.FailWith(pooltest.ErrUnreachable)
			s.Cut(io.ErrUnexpectedEOF)
			time.Sleep(time.Minute)
			require.Equal(t, !changed, l.Status().Synced)
			require.Equal(t, !changed, l.Trust(5*time.Minute) == nil)
			require.Error(t, l.Trust(30*time.Second))
			second.stop()

			s.Heal()
			third := start(t, s, disk, nil)
			defer third.stop()
			require.Equal(t, s.State(nil), pooltest.Contents(t, third.synced()), "what was in doubt is not kept")
		})
	}
}
