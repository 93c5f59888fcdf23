// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// late makes the server's watches that continue a state bring what has changed
// since only after a delay; for ever if it is negative.
func late(s *pooltest.Server, delay time.Duration) {
	s.Set(func(s *pooltest.Server) {
		s.Accepted = func(verb string, w *pooltest.Watch) {
			held := w.Data
			if verb != "watch" || len(held) == 0 {
				return
			}
			w.Data = nil
			if delay >= 0 {
				time.AfterFunc(delay, func() { w.Push(held) })
			}
		}
	})
}

// changes are what may happen to a server between two processes.
func changes() map[string]func(s *pooltest.Server) {
	return map[string]func(s *pooltest.Server){
		"deleted": func(s *pooltest.Server) { s.Delete("ns", "w1") },
		"changed": func(s *pooltest.Server) { s.Put("ns", "w2", 1000) },
		"created": func(s *pooltest.Server) { s.Put("ns", "new", 1) },
		"created and deleted": func(s *pooltest.Server) {
			s.Put("ns", "new", 1)
			s.Put("ns", "w2", 1000)
			s.Delete("ns", "new")
		},
		"deleted and created": func(s *pooltest.Server) {
			s.Delete("ns", "w1")
			s.Put("ns", "w1", 1000)
		},
		"elsewhere only": func(s *pooltest.Server) { s.Set(func(s *pooltest.Server) { s.Version += 10 }) },
	}
}

// TestKeptStateIsSyncedOnlyOnceProven: however late the stream is that
// continues a kept state, what was deleted or changed meanwhile is never
// shown, and a state never counts as seen later than its server was asked.
func TestKeptStateIsSyncedOnlyOnceProven(t *testing.T) {
	for name, change := range changes() {
		for _, delay := range []time.Duration{
			0, 200 * time.Millisecond, 400 * time.Millisecond,
			time.Second, 3 * time.Second, 9 * time.Second, 11 * time.Second, -1,
		} {
			t.Run(fmt.Sprint(name, " ", delay), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, disk := filled(20), newMemory()
					first := start(t, s, disk, nil)
					first.synced()
					first.stop()
					requests(s)
					change(s)
					late(s, delay)
					time.Sleep(time.Hour)

					second := start(t, s, disk, nil)
					defer second.stop()
					began := time.Now()
					l := pooltest.Acquire(t, second.pool, pooltest.Everything)
					events := pooltest.Record(t, second.pool, l)
					require.NoError(t, l.WaitForSync(t.Context()))
					took := time.Since(began)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					synctest.Wait() // until it is counted
					if second.pool.Totals().Restores == 1 {
						require.Zero(t, l.Status().LastSeen.Sub(began), "the server was asked then")
						require.True(t, name == "elsewhere only" || took == delay, took)
					}
					require.Equal(t, s.State(nil), events.State())
					require.Equal(t, len(s.State(nil)), events.Count(), "nothing else was ever shown")

					proven := delay >= 0 && delay < 10*time.Second || name == "elsewhere only"
					require.Equal(t, proven, second.pool.Totals().Restores == 1)
					require.Equal(t, proven, requests(s)["stream"] == 0)
					require.LessOrEqual(t, took, 11*time.Second)
				})
			})
		}
	}
}

// begun returns a server that has changed since a process kept its state of a
// selection.
func begun(t *testing.T, disk *memory, key informerpool.Key) *pooltest.Server {
	t.Helper()
	s := filled(20)
	s.Put("other", "w", 1)
	s.Put("ns", "labeled", 1, "app")
	s.Put("ns", "selected", 1, "app")
	first := start(t, s, disk, nil)
	pooltest.AcquireSynced(t, first.pool, key)
	first.stop()
	s.Delete("ns", "w1")
	s.Put("ns", "w2", 1000)
	s.Put("ns", "labeled", 2)
	s.Put("ns", "selected", 2, "none")
	s.Put("other", "later", 1)
	requests(s)

	return s
}

// TestStateOfAnotherDefinitionIsNotUsed: the server may show other content under
// the versions that it had.
func TestStateOfAnotherDefinitionIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile func(*pooltest.Defined)
		used              bool
	}{
		"the same":                {used: true},
		"another":                 {meanwhile: func(d *pooltest.Defined) { d.Define("two") }},
		"changed":                 {meanwhile: (*pooltest.Defined).Redefine},
		"may not be listed":       {before: func(d *pooltest.Defined) { d.Forbid(true) }, used: true},
		"may not be listed later": {meanwhile: func(d *pooltest.Defined) { d.Forbid(true) }},
		"may be listed later only": {before: func(d *pooltest.Defined) { d.Forbid(true) },
			meanwhile: func(d *pooltest.Defined) { d.Forbid(false) }},
		"changed after the list": {before: func(d *pooltest.Defined) {
			time.AfterFunc(2*time.Second, d.Redefine)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, disk := pooltest.NewDefined(filled(10)), newMemory()
				do := func(change func(*pooltest.Defined)) {
					if change != nil {
						change(d)
					}
				}
				do(c.before)
				first := start(t, d, disk, nil)
				first.synced()
				time.Sleep(2 * round)
				first.stop()
				do(c.meanwhile)
				for _, used := range []bool{c.used, true} { // the next process has listed
					next := start(t, d, disk, nil)
					l := next.synced()
					require.Equal(t, d.State(nil), pooltest.Contents(t, l))
					require.Equal(t, used, restored(next) == 1)
				}
			})
		})
	}
}

// undefinable is a server that fails to say which definitions there are.
type undefinable struct{ *pooltest.Defined }

func (u undefinable) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == "customresourcedefinitions" {
		return nil, apierrors.NewInternalError(io.ErrUnexpectedEOF)
	}
	return u.Defined.List(ctx, r)
}

// TestStateDoesNotWaitForAnothersDefinition, which is asked for again and again.
func TestStateDoesNotWaitForAnothersDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := undefinable{pooltest.NewDefined(filled(10))}, newMemory()
		for range 2 {
			p := start(t, s, disk, nil)
			for _, key := range []informerpool.Key{pooltest.In("ns"), pooltest.In("other"), pooltest.Everything} {
				began := time.Now()
				pooltest.AcquireSynced(t, p.pool, key)
				synctest.Wait()
				require.Less(t, time.Since(began), 10*time.Second)
			}
			p.stop()
		}
	})
}

// TestKeptStateOfASelectionIsProven by a list of the selection alone.
func TestKeptStateOfASelectionIsProven(t *testing.T) {
	labeled := pooltest.Everything
	labeled.LabelSelector = "app"
	for name, key := range map[string]informerpool.Key{
		"namespace": pooltest.In("ns"), "another namespace": pooltest.In("other"), "label": labeled,
	} {
		for _, delay := range []time.Duration{0, time.Second, -1} {
			t.Run(fmt.Sprint(name, delay), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := newMemory()
					s := begun(t, disk, key)
					late(s, delay)
					second := start(t, s, disk, nil)
					defer second.stop()
					l := pooltest.AcquireSynced(t, second.pool, key)
					synctest.Wait() // until it is counted
					require.Equal(t, s.State(pooltest.Matcher(key)), pooltest.Contents(t, l))
					require.Equal(t, delay >= 0, second.pool.Totals().Restores == 1)
					got := requests(s)
					require.Equal(t, 1, got["audit"])
					require.Equal(t, delay >= 0, got["stream"] == 0)
				})
			})
		}
	}
}

// TestServerThatDoesNotProveCostsAList: whatever it does with the requests by
// which a kept state is proven, nothing is shown but its present state.
func TestServerThatDoesNotProveCostsAList(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, failure := range map[string]error{
		"forbidden": forbidden, "busy": apierrors.NewTooManyRequests("", 1),
		"broken": apierrors.NewInternalError(io.ErrUnexpectedEOF), "cut": io.ErrUnexpectedEOF,
		"not acceptable": apierrors.NewGenericServerResponse(406, "list", schema.GroupResource{}, "", "", 0, false),
	} {
		for _, verb := range []string{"audit", "guard", "watch"} {
			t.Run(name+" "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := newMemory()
					s := begun(t, disk, pooltest.Everything)
					failures := 0
					s.Set(func(s *pooltest.Server) {
						s.Fail = func(v string) error {
							if v == verb && failures < 3 {
								failures++
								return failure
							}
							return nil
						}
					})
					p := requireSameAs(t, s, disk, nil)
					defer p.stop()
					require.Positive(t, failures)
					if name != "not acceptable" || verb != "guard" { // then a list in pages is the question
						require.Zero(t, p.pool.Totals().Restores)
						require.Positive(t, requests(s)["stream"])
					}
				})
			})
		}
	}
}

// lagging answers lists of metadata with the state of another server.
type lagging struct {
	*pooltest.Server

	list func(ctx context.Context, r informerpool.Request) (io.ReadCloser, error)
}

// List implements informerpool.Source.
func (l *lagging) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.MetadataOnly {
		return l.list(ctx, r)
	}
	return l.Server.List(ctx, r)
}

// TestListFromBeforeTheQuestionProvesNothing: a server behind the same address
// is late, and agrees with the kept state, or hangs.
func TestListFromBeforeTheQuestionProvesNothing(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, twin, disk := filled(5), filled(5), newMemory()
			first := start(t, s, disk, nil)
			first.synced()
			first.stop()
			s.Delete("ns", "w1")
			l := &lagging{s, twin.List}
			if hangs {
				l.list = func(ctx context.Context, _ informerpool.Request) (io.ReadCloser, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
			}
			second := start(t, l, disk, nil)
			defer second.stop()
			require.Equal(t, s.State(nil), pooltest.Contents(t, second.synced()))
			require.Zero(t, second.pool.Totals().Restores)
		})
	}
}

// TestStateInDoubtIsNotCaptured: a process that ends before its state was
// proven leaves what the one before it has kept, and the next one proves that.
func TestStateInDoubtIsNotCaptured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemory()
		s := begun(t, disk, pooltest.Everything)
		late(s, 9*time.Second)
		kept := disk.count()
		second := start(t, s, disk, nil)
		l := pooltest.Acquire(t, second.pool, pooltest.Everything)
		time.Sleep(5 * time.Second)
		require.False(t, l.Status().Synced)
		_, exact := second.pool.Capture(l.Key(), informerpool.Mark{})
		require.False(t, exact)
		left := second.killed(disk)
		require.Equal(t, kept, left.count())

		s.Put("ns", "w3", 1000)
		third := requireSameAs(t, s, left, nil)
		defer third.stop()
		require.Equal(t, int64(1), third.pool.Totals().Restores)
	})
}

// TestPagesThatExpireAreReadAgain, in a single response.
func TestPagesThatExpireAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, lists := newMemory(), 0
		s := begun(t, disk, pooltest.Everything)
		l := &lagging{Server: s}
		l.list = func(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
			if lists++; r.Options.Continue != "" {
				return nil, apierrors.NewResourceExpired("continue token expired")
			}
			return s.List(ctx, r)
		}
		second := start(t, l, disk, func(o *informerpool.Options, _ *persist.Options) { o.PageSize = 5 })
		defer second.stop()
		require.Equal(t, s.State(nil), pooltest.Contents(t, second.synced()))
		require.Equal(t, int64(1), second.pool.Totals().Restores)
		require.Equal(t, 3, lists)
	})
}
