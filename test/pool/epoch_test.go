// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardEpochComesBack: a request fails since the cluster is another one, and
// before the next attempt it is the one of before again. The informer lists: as
// long as it only resumed, it would not be trusted any more.
func TestHazardEpochComesBack(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(string) error {
				s.Heal()
				return informerpool.ErrEpochChanged
			}
		})
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Minute)
		require.Equal(t, s.Epoch, l.Epoch())
		require.NoError(t, l.Trust(time.Minute))
		require.Zero(t, l.Status().History)
		s.Put("ns", "a", 2)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardEpochComesBackForSomeInformers: one informer has noticed that the
// cluster was another one for a while. The others have not: what one of them has
// shown, the other one has still to reach, whether or not the first one has ended.
func TestHazardEpochComesBackForSomeInformers(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(strconv.FormatBool(ends), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				first, was := pooltest.AcquireSynced(t, p, pooltest.In("ns")), s.Epoch
				notices := pooltest.AcquireSynced(t, p, pooltest.In("elsewhere"))
				late := pooltest.AcquireSynced(t, p, pooltest.Everything)
				s.Deafly(func() { s.Put("ns", "a", 1) })
				watches := map[informerpool.Key]*pooltest.Watch{}
				for w := range watchesOf(s) {
					watches[w.Key] = w
				}
				watches[pooltest.In("ns")].Push(pooltest.Frame("ADDED", s.Objects[named("a")].JSON()))
				synctest.Wait()
				o, err := first.Find("ns", "a", time.Hour)
				require.NoError(t, err)
				require.NotNil(t, o)
				_, err = late.Find("ns", "a", time.Hour)
				require.ErrorIs(t, err, informerpool.ErrOutdated)
				if ends {
					first.ReleaseNow()
					synctest.Wait()
				}

				for _, epoch := range []informerpool.Epoch{"another", was} {
					s.Set(func(s *pooltest.Server) { s.Epoch = epoch })
					for w := range watchesOf(s) {
						if w.Key == notices.Key() {
							w.End(io.ErrUnexpectedEOF)
						}
					}
					pooltest.After(time.Minute)
					require.Equal(t, epoch, notices.Epoch())
					require.Equal(t, was, late.Epoch())
				}
				_, err = late.Find("ns", "a", time.Hour)
				require.ErrorIs(t, err, informerpool.ErrOutdated)
				_, outdated := late.ListOutdated(pooltest.In("ns"), false)
				require.True(t, outdated)
				s.SendBookmark()
				watches[pooltest.Everything].Push(pooltest.Frame("ADDED", s.Objects[named("a")].JSON()))
				synctest.Wait()
				_, err = late.Find("ns", "a", time.Hour)
				require.NoError(t, err)
				_, outdated = late.ListOutdated(pooltest.In("ns"), false)
				require.False(t, outdated)
			})
		})
	}
}

// pausing is a server that leaves a request for a second page of all objects
// unanswered.
type pausing struct {
	*pooltest.Server

	pauses *atomic.Bool
}

// List implements informerpool.Source.
func (s pausing) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.pauses.Load() && r.Key == pooltest.Everything && r.Options.Continue != "" {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.Server.List(ctx, r)
}

// TestHazardPartOfAListIsOfAHistoryThatAnotherInformerHasFound: while an informer
// lists, another one finds that the history is another one. What the list has
// brought so far is of that, and is not shown beside objects of the earlier one.
func TestHazardPartOfAListIsOfAHistoryThatAnotherInformerHasFound(t *testing.T) {
	var pauses atomic.Bool
	pooltest.Bubble(t, func(o *informerpool.Options) {
		s := o.Source.(*pooltest.Server)
		s.NoStream = true
		o.PageSize, o.Source = 2, pausing{s, &pauses}
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.Put("ns", name, 1)
		}
		other := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		was := pooltest.Contents(t, l)
		synctest.Wait() // for the watches

		pauses.Store(true)
		s.Deafly(func() { s.Put("ns", "a", 2) })
		s.Compact()
		watches := map[informerpool.Key]*pooltest.Watch{}
		for w := range watchesOf(s) {
			watches[w.Key] = w
		}
		watches[l.Key()].End(io.ErrUnexpectedEOF)
		pooltest.After(5 * time.Second)
		watches[other.Key()].Push(pooltest.BookmarkFrame(101, false))
		synctest.Wait()
		require.Error(t, l.Trust(time.Hour))
		require.Equal(t, was, pooltest.Contents(t, l))

		pauses.Store(false)
		pooltest.After(5 * time.Minute)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.NoError(t, l.Trust(time.Minute))
	})
}
