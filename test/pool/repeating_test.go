// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// repeatingServer is an aggregated API that ignores the version at which a
// watch is to begin: each watch begins with the current objects, in no order.
type repeatingServer struct{ *pooltest.Server }

// Watch implements informerpool.Source.
func (s *repeatingServer) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents != nil {
		return s.Server.Watch(ctx, r)
	}
	r.Options.ResourceVersion = ""
	return (&versionlessServer{Server: s.Server}).Watch(ctx, r)
}

// oddity is a test of an API server that is odd in one respect, for a virtual
// hour.
type oddity struct {
	*pooltest.Server

	pool      *informerpool.Pool
	lease     *informerpool.Lease
	events    *pooltest.Recorder
	log       *fleettest.Logbook
	rollbacks int
}

// withOddity runs a test on a server that wrap makes odd, and in which one
// object of four was deleted and one changed.
func withOddity(t *testing.T, wrap func(*pooltest.Server) informerpool.Source, test func(*testing.T, *oddity)) {
	t.Helper()
	o := &oddity{log: &fleettest.Logbook{}}
	pooltest.Bubble(t, func(options *informerpool.Options) {
		s := options.Source.(*pooltest.Server)
		s.NoStream = true
		options.MaxObjectBytes = 10_000
		options.Source, options.Logger = wrap(s), o.log.Logger()
		options.OnRollback = func(informerpool.Key) { o.rollbacks++ }
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		o.Server, o.pool = s, p
		for _, name := range []string{"a", "b", "c", "d"} {
			s.Put("ns", name, 1)
		}
		s.Put("ns", "a", 2)
		s.Delete("ns", "d")
		o.lease = pooltest.AcquireSynced(t, p, pooltest.Everything)
		o.events = pooltest.Record(t, p, o.lease)
		synctest.Wait()
		test(t, o)
		o.events.RequireSound(t)
	})
}

// TestHazardWatchesThatBeginWithKnownObjects: what a repetition explains is no
// evidence of another history. An object that the cache has in that state is
// neither an event nor a reason to list; one that changed between the list and
// the watch, or between two watches, is delivered, in whatever order the watch
// shows the objects.
func TestHazardWatchesThatBeginWithKnownObjects(t *testing.T) {
	repeating := func(s *pooltest.Server) informerpool.Source { return &repeatingServer{s} }
	withOddity(t, repeating, func(t *testing.T, o *oddity) {
		before := o.lease.Status()
		o.events.Take()
		for i := range 12 {
			pooltest.After(5 * time.Minute)
			require.NoError(t, o.lease.Trust(0))
			o.FailWith(pooltest.ErrUnreachable)
			o.Cut(io.ErrUnexpectedEOF)
			for _, name := range []string{"c", "new", "a", "b"} {
				o.Put("ns", name, i+3)
			}
			o.Heal()
			pooltest.After(time.Minute)
			require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
			require.Equal(t, o.State(nil), o.events.State())
		}
		require.Len(t, o.events.Take(), 48)
		require.Zero(t, o.rollbacks)
		require.Equal(t, before.History, o.lease.Status().History)
		require.LessOrEqual(t, o.lease.Status().Lists-before.Lists, int64(12), "one behind each beginning")
		require.LessOrEqual(t, len(o.log.Lines), 12, "%v", o.log.Lines)
	})
}

// TestHazardWatchBreaksWithinRepeatedObjects: the objects of a beginning have
// no order, so those that did not arrive may have changed.
func TestHazardWatchBreaksWithinRepeatedObjects(t *testing.T) {
	cut := 0
	repeating := func(s *pooltest.Server) informerpool.Source {
		return &beginning{Server: s, frames: func() [][]byte {
			shown := [][]byte{pooltest.Frame("ADDED", s.Objects[named("c")].JSON())}
			if cut++; cut > 2 {
				shown = append(shown, pooltest.Frame("ADDED", s.Objects[named("b")].JSON()),
					pooltest.Frame("ADDED", s.Objects[named("a")].JSON()))
			}
			return shown
		}}
	}
	withOddity(t, repeating, func(t *testing.T, o *oddity) {
		o.FailWith(pooltest.ErrUnreachable)
		o.Cut(io.ErrUnexpectedEOF)
		for _, name := range []string{"b", "a", "c"} {
			o.Put("ns", name, 9)
		}
		o.Heal()
		for range 3 {
			pooltest.After(10 * time.Second)
			o.Cut(io.ErrUnexpectedEOF)
		}
		pooltest.After(time.Minute)
		require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
		require.Zero(t, o.rollbacks)
	})
}

// TestHazardBeginningThatNothingFollows: what was deleted between two watches is
// missing in the beginning of the second. If no change and no bookmark shows
// that the beginning is over, silence does.
func TestHazardBeginningThatNothingFollows(t *testing.T) {
	for name, deleted := range map[string][]string{"some": {"a"}, "all": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			repeating := func(s *pooltest.Server) informerpool.Source { return &repeatingServer{s} }
			withOddity(t, repeating, func(t *testing.T, o *oddity) {
				for range 5 {
					pooltest.After(time.Minute)
					lists := o.lease.Status().Lists
					o.Cut(io.ErrUnexpectedEOF)
					for _, name := range deleted {
						o.Delete("ns", name)
					}
					time.Sleep(20 * time.Second)
					require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
					require.Equal(t, o.State(nil), o.events.State())
					require.NoError(t, o.lease.Trust(0))
					time.Sleep(time.Hour)
					require.Equal(t, lists+1, o.lease.Status().Lists)
					for _, name := range deleted {
						o.Put("ns", name, 1)
					}
				}
				require.Zero(t, o.rollbacks)
				require.LessOrEqual(t, len(o.log.Lines), 5, "%v", o.log.Lines)
			})
		})
	}
}

// slowWatches is a source of which the frames of watches arrive one after the
// other.
type slowWatches struct{ informerpool.Source }

// Watch implements informerpool.Source.
func (s slowWatches) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Source.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	return slowly{body}, nil
}

// slowly is a stream of which a part arrives each millisecond.
type slowly struct{ io.ReadCloser }

// Read implements io.Reader.
func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.ReadCloser.Read(p[:min(len(p), 64)])
}

// TestHazardObjectEndsBehindTheBeginningOfARepeatingWatch: the list behind the
// beginning has removed an object of which changes from before are still to
// come.
func TestHazardObjectEndsBehindTheBeginningOfARepeatingWatch(t *testing.T) {
	slow := func(s *pooltest.Server) informerpool.Source { return slowWatches{&repeatingServer{s}} }
	withOddity(t, slow, func(t *testing.T, o *oddity) {
		o.FailWith(pooltest.ErrUnreachable)
		o.Cut(io.ErrUnexpectedEOF)
		o.Delete("ns", "a")
		o.Heal()
		pooltest.After(5 * time.Second) // the watch has begun without it
		o.events.Take()
		o.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "list" {
					o.Heal()
					o.Put("ns", "b", 2)
					o.Delete("ns", "b")
				}
				return nil
			}
		})
		o.Put("ns", "c", 2)
		pooltest.After(time.Minute)
		require.ElementsMatch(t, []string{"Updated ns/c@108", "Deleted ns/a@105", "Deleted ns/b@102"}, o.events.Take())
		require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
		require.Zero(t, o.rollbacks)
	})
}

// TestServerThatRepeatsNoLongerIsListedOnce: a watch that shows nothing is taken
// for the beginning of an empty resource. The list shows that it is none.
func TestServerThatRepeatsNoLongerIsListedOnce(t *testing.T) {
	repeating := func(s *pooltest.Server) informerpool.Source {
		return healing{&repeatingServer{s}, func() bool { return s.Count("watch") > 0 }}
	}
	withOddity(t, repeating, func(t *testing.T, o *oddity) {
		lists := o.lease.Status().Lists
		for range 5 {
			o.Cut(io.ErrUnexpectedEOF)
			pooltest.After(5 * time.Minute)
			require.NoError(t, o.lease.Trust(0))
		}
		require.Equal(t, lists+1, o.lease.Status().Lists)
	})
}

// healing is a server that repeats what the client has until it is healed.
type healing struct {
	*repeatingServer

	healed func() bool
}

// Watch implements informerpool.Source.
func (h healing) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if h.healed() {
		return h.Server.Watch(ctx, r)
	}
	return h.repeatingServer.Watch(ctx, r)
}

// beginning is a server whose watches begin with given frames, whatever the
// version.
type beginning struct {
	*pooltest.Server

	frames func() [][]byte
}

// Watch implements informerpool.Source.
func (s *beginning) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents != nil {
		return s.Server.Watch(ctx, r)
	}
	if err := s.Begin(ctx, "watch", r); err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	w := &pooltest.Watch{Ctx: ctx, Server: s.Server, Match: pooltest.Matcher(r.Key), News: make(chan struct{}, 1),
		From: s.Version}
	for _, f := range s.frames() {
		w.Push(f)
	}
	s.Watchers[w] = struct{}{}
	return w, nil
}

// TestHazardWatchBeginsWithAnEarlierStateThatIsTooLarge: what a watch shows
// first may be from before its version. A refused state is then no reason to
// take the object for unknown until it changes.
func TestHazardWatchBeginsWithAnEarlierStateThatIsTooLarge(t *testing.T) {
	var once [][]byte
	odd := func(s *pooltest.Server) informerpool.Source {
		return &beginning{Server: s, frames: func() [][]byte {
			frames := once
			once = nil
			return frames
		}}
	}
	withOddity(t, odd, func(t *testing.T, o *oddity) {
		earlier := o.Objects[named("a")]
		o.Put("ns", "a", 3)
		synctest.Wait()
		once = [][]byte{pooltest.Frame("ADDED", tooLarge(earlier))}
		o.Cut(io.ErrUnexpectedEOF)
		pooltest.After(5 * time.Minute)
		require.Nil(t, once)
		require.Positive(t, o.lease.Status().Rejected)
		require.Zero(t, o.lease.Status().Unknown)
		require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
		require.NoError(t, o.lease.Trust(0))
		require.Zero(t, o.rollbacks)
	})
}

// TestHazardDeletesWithTheVersionOfTheLastState: a delete may show the object
// as it was last stored, at a version before the stream's position.
func TestHazardDeletesWithTheVersionOfTheLastState(t *testing.T) {
	plain := func(s *pooltest.Server) informerpool.Source { return s }
	withOddity(t, plain, func(t *testing.T, o *oddity) {
		lists, before := o.Count("list"), o.lease.Status()
		for i := range 60 {
			name := "gone-" + strconv.Itoa(i)
			o.Put("ns", name, 1)
			o.Put("ns", "a", i)
			last := o.Objects[named(name)]
			o.Deafly(func() { o.Delete("ns", name) })
			replay(o.Server, pooltest.Frame("DELETED", last.JSON()))
			synctest.Wait()
			require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
			require.Equal(t, o.State(nil), o.events.State())
			replay(o.Server, pooltest.Frame("DELETED", last.JSON())) // of what is gone already
			o.SendBookmark()
			pooltest.After(time.Minute)
			require.NoError(t, o.lease.Trust(0))
		}
		require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
		require.Zero(t, o.rollbacks)
		require.Equal(t, before.History, o.lease.Status().History)
		require.Equal(t, lists, o.Count("list"))
		require.Empty(t, o.log.Lines)

		reached := o.lease.ResourceVersion()
		o.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Minute)
		require.Equal(t, reached, o.lease.ResourceVersion(), "a delete does not set the position back")
	})
}

// TestHazardHistoryGoesBackAgainAndAgain: each list works, and the stream that
// follows it goes back once more. The lists become rare, and the log has a line
// for the beginning, not one for each.
func TestHazardHistoryGoesBackAgainAndAgain(t *testing.T) {
	for name, frame := range map[string]func(o *oddity) []byte{
		"bookmarks": func(*oddity) []byte { return pooltest.BookmarkFrame(7, false) },
		"earlier states": func(o *oddity) []byte {
			earlier := o.Objects[named("a")]
			earlier.Version -= 50
			return pooltest.Frame("MODIFIED", earlier.JSON())
		},
	} {
		for _, pause := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
			t.Run(name+" after "+pause.String(), func(t *testing.T) {
				plain := func(s *pooltest.Server) informerpool.Source { s.Version = 1000; return s }
				withOddity(t, plain, func(t *testing.T, o *oddity) {
					lists := o.Count("list")
					for range int(time.Hour / pause) {
						pooltest.After(pause)
						replay(o.Server, frame(o))
					}
					synctest.Wait()
					require.Positive(t, o.rollbacks)
					require.LessOrEqual(t, o.rollbacks, 30)
					require.LessOrEqual(t, o.Count("list")-lists, 40)
					require.LessOrEqual(t, len(o.log.Lines), 10, "%v", o.log.Lines)
					pooltest.After(10 * time.Minute)
					require.Equal(t, o.State(nil), pooltest.Contents(t, o.lease))
					require.NoError(t, o.lease.Trust(0))
				})
			})
		}
	}
}
