// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardEarlierStateMakesARefusedObjectKnown: a state that was refused is the
// object's last one until a later one is accepted. A proxy that shows an earlier
// state once more, or the delete of an earlier object of the name, says nothing of
// it: the cache would answer with that state, or without the object.
func TestHazardEarlierStateMakesARefusedObjectKnown(t *testing.T) {
	for name, again := range map[string]func(changed, deleted pooltest.Object) []byte{
		"the cached state": func(changed, _ pooltest.Object) []byte {
			return pooltest.Frame("MODIFIED", changed.JSON())
		},
		"a delete": func(_, deleted pooltest.Object) []byte {
			return pooltest.Frame("DELETED", deleted.JSON())
		},
		"a delete that is too large": func(_, deleted pooltest.Object) []byte {
			return pooltest.Frame("DELETED", tooLarge(deleted))
		},
	} {
		t.Run(name, func(t *testing.T) {
			plain := func(s *pooltest.Server) informerpool.Source { return s }
			withOddity(t, plain, func(t *testing.T, o *oddity) {
				o.Put("ns", "e", 1)
				o.Delete("ns", "e")
				synctest.Wait()
				changed, deleted := o.Objects[named("a")], o.Log[len(o.Log)-1].Object
				o.Deafly(func() {
					o.Put("ns", "a", 3)
					o.Put("ns", "e", 3)
				})
				replay(o.Server, pooltest.Frame("MODIFIED", tooLarge(o.Objects[named("a")])),
					pooltest.Frame("ADDED", tooLarge(o.Objects[named("e")])))
				synctest.Wait()
				require.Equal(t, 2, o.lease.Status().Unknown)
				replay(o.Server, again(changed, deleted))
				synctest.Wait()
				for _, name := range []string{"a", "e"} {
					_, err := o.lease.Find("ns", name, time.Hour)
					require.ErrorIs(t, err, informerpool.ErrRefused, name)
				}

				o.Put("ns", "a", 4)
				o.Delete("ns", "e")
				synctest.Wait()
				require.Zero(t, o.lease.Status().Unknown)
				require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
				require.Zero(t, o.rollbacks)
			})
		})
	}
}

// growing streams lists in which an object becomes too large before their end.
type growing struct{ *pooltest.Server }

// Watch implements informerpool.Source.
func (s growing) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil || r.Options.FieldSelector != "" {
		return s.Server.Watch(ctx, r)
	}
	body, err := s.Server.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	w, first := body.(*pooltest.Watch), s.Objects[named("a")]
	later := first
	s.Version++
	later.Version, later.Value = s.Version, 2
	s.Objects[named("a")] = later
	w.Data = append(append(pooltest.Frame("ADDED", first.JSON()),
		pooltest.Frame("MODIFIED", tooLarge(later))...), pooltest.BookmarkFrame(s.Version, true)...)
	w.From = s.Version
	return w, nil
}

// TestHazardObjectIsRefusedAtTheEndOfAStreamedList: a streamed list may show
// several states of an object. If the last one is refused, the object is unknown,
// whatever state came before.
func TestHazardObjectIsRefusedAtTheEndOfAStreamedList(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.MaxObjectBytes = 10_000
		o.Source = growing{o.Source.(*pooltest.Server)}
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		_, err := l.Find("ns", "a", time.Hour)
		require.ErrorIs(t, err, informerpool.ErrRefused)
		s.Put("ns", "a", 3)
		synctest.Wait()
		_, err = l.Find("ns", "a", time.Hour)
		require.NoError(t, err)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardRefusedObjectStandsForOneThatIsGone: a watch that begins with the
// objects that exist shows one that is refused, and not another one that was
// deleted. It has not shown all the cached ones. If it has, the refused one is no
// reason to list.
func TestHazardRefusedObjectStandsForOneThatIsGone(t *testing.T) {
	repeating := func(s *pooltest.Server) informerpool.Source { return &repeatingServer{s} }
	withOddity(t, repeating, func(t *testing.T, o *oddity) {
		o.FailWith(pooltest.ErrUnreachable)
		o.Cut(io.ErrUnexpectedEOF)
		o.Delete("ns", "c")
		o.Put("ns", "e", 1, "content="+strings.Repeat("x", 10_000))
		o.Heal()
		expected := o.State(func(e pooltest.Object) bool { return e.Name != "e" })
		pooltest.After(30 * time.Second)
		require.Equal(t, expected, pooltest.Contents(t, o.lease))
		require.Equal(t, 1, o.lease.Status().Unknown)
		lists := o.lease.Status().Lists
		for range 5 {
			o.Cut(io.ErrUnexpectedEOF)
			pooltest.After(time.Minute)
		}
		require.Equal(t, lists, o.lease.Status().Lists)
		require.Equal(t, expected, pooltest.Contents(t, o.lease))
		require.Equal(t, 1, o.lease.Status().Unknown)
		require.Zero(t, o.rollbacks)
	})
}

// TestStreamThatRepeatsARefusedStateIsOfOneHistory, as one is that repeats the
// cached state, whatever it has shown meanwhile.
func TestStreamThatRepeatsARefusedStateIsOfOneHistory(t *testing.T) {
	plain := func(s *pooltest.Server) informerpool.Source { return s }
	withOddity(t, plain, func(t *testing.T, o *oddity) {
		o.Put("ns", "a", 3, "content="+strings.Repeat("x", 10_000))
		o.Put("ns", "b", 3)
		synctest.Wait()
		require.Equal(t, 1, o.lease.Status().Unknown)
		replay(o.Server, pooltest.Frame("MODIFIED", o.Objects[named("a")].JSON()))
		pooltest.After(time.Minute)
		require.Equal(t, 1, o.lease.Status().Unknown)
		require.Zero(t, o.rollbacks)
	})
}
