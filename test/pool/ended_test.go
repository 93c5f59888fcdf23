// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// staleAfter is how long the informers of these tests are trusted without a
// watch, and settling how long a stream that carries nothing is on trial.
const (
	staleAfter = 3 * time.Minute
	settling   = 5 * time.Second
)

// errorFrame is a frame that reports an error.
func errorFrame(err apierrors.APIStatus) []byte {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	b, failed := json.Marshal(status)
	if failed != nil {
		panic(failed)
	}
	return pooltest.Frame("ERROR", b)
}

// endedAtOnce lists the ways in which a server begins a stream and ends it
// without ever showing whether anything has changed.
var endedAtOnce = map[string]func(w *pooltest.Watch){
	"end":         func(w *pooltest.Watch) { w.End(io.EOF) },
	"cut":         func(w *pooltest.Watch) { w.End(io.ErrUnexpectedEOF) },
	"reset":       func(w *pooltest.Watch) { w.End(errors.New("connection reset by peer")) },
	"half":        func(w *pooltest.Watch) { w.Push([]byte(`{"type":"BOOKMARK","obj`)); w.End(io.ErrUnexpectedEOF) },
	"gone":        says(apierrors.NewResourceExpired("too old resource version")),
	"error":       says(apierrors.NewInternalError(errors.New("no"))),
	"unavailable": says(apierrors.NewServiceUnavailable("no")),
	"timeout":     says(apierrors.NewTimeoutError("no", 0)),
	"busy":        says(apierrors.NewTooManyRequestsError("no")),
	"not known":   says(apierrors.NewUnauthorized("no")),
	"bookmark":    repeats(func(w *pooltest.Watch) []byte { return pooltest.BookmarkFrame(w.From, false) }),
	"event": repeats(func(w *pooltest.Watch) []byte {
		for _, e := range w.Server.Log {
			if e.Version == w.From {
				return pooltest.Frame(e.Frame, e.Object.JSON())
			}
		}
		return nil
	}),
}

// repeats repeats a frame at the version from which the watch is resumed.
func repeats(frame func(w *pooltest.Watch) []byte) func(w *pooltest.Watch) {
	return func(w *pooltest.Watch) {
		if w.From > 0 { // not a list
			w.Push(frame(w))
		}
		w.End(io.ErrUnexpectedEOF)
	}
}

func says(err apierrors.APIStatus) func(w *pooltest.Watch) {
	return func(w *pooltest.Watch) { w.Push(errorFrame(err)); w.End(io.EOF) }
}

// hastily makes a server accept each watch, and end it after a time. Lists
// fail.
func hastily(s *pooltest.Server, within time.Duration, end func(w *pooltest.Watch)) {
	s.Set(func(s *pooltest.Server) {
		s.Fail = func(verb string) error {
			if verb == "list" || verb == "stream" {
				return pooltest.ErrUnreachable
			}
			return nil
		}
		s.Deaf = true
		s.Accepted = func(_ string, w *pooltest.Watch) {
			w.Data = nil // the changes it owes
			if within == 0 {
				end(w)
				return
			}
			time.AfterFunc(within, func() { end(w) })
		}
	})
}

// unreachable cuts all streams, and lets no request succeed.
func unreachable(s *pooltest.Server) {
	s.FailWith(pooltest.ErrUnreachable)
	s.Cut(io.ErrUnexpectedEOF)
}

// TestHazardResumeThatIsEndedAtOnceRenewsNothing: a stream that a server
// accepts and ends at once proves nothing about its state, however often that
// happens.
func TestHazardResumeThatIsEndedAtOnceRenewsNothing(t *testing.T) {
	for name, end := range endedAtOnce {
		for _, within := range []time.Duration{0, settling - time.Second} {
			t.Run(fmt.Sprint(name, " within ", within), func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					pooltest.After(time.Minute)
					s.Put("ns", "a", 2)
					pooltest.After(time.Second)
					unreachable(s)
					began := time.Now()
					s.Put("ns", "a", 3) // unseen
					time.Sleep(staleAfter - time.Minute)
					hastily(s, within, end)
					for time.Since(began) <= staleAfter {
						if name != "not known" {
							require.NoError(t, l.Trust(staleAfter))
						}
						time.Sleep(100 * time.Millisecond)
					}
					followed := began.Add(time.Millisecond)
					for time.Since(began) < 20*time.Minute {
						require.Error(t, l.Trust(staleAfter), "%s later", time.Since(began))
						status := l.Status()
						require.Equal(t, informerpool.StateDegraded, status.State)
						require.Error(t, status.LastError)
						require.False(t, status.LastSeen.After(followed), status.LastSeen.Sub(began))
						require.True(t, p.ClusterSummary(pooltest.Everything.Cluster).OldestSeen.Equal(
							status.LastSeen))
						time.Sleep(100 * time.Millisecond)
					}
					s.Set(func(s *pooltest.Server) { s.Fail, s.Accepted, s.Deaf = nil, nil, false })
					pooltest.After(time.Minute)
					require.NoError(t, l.Trust(0))
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					require.Equal(t, informerpool.StateSynced, l.Status().State)
					require.NoError(t, l.Status().LastError)
				})
			})
		}
	}
}

// TestHazardListThatIsEndedAtOnceRenewsNothing: the same holds for streamed
// lists that break before their end.
func TestHazardListThatIsEndedAtOnceRenewsNothing(t *testing.T) {
	for name, end := range endedAtOnce {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				s.Put("ns", "b", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				pooltest.After(time.Minute)
				unreachable(s)
				began := time.Now()
				s.Delete("ns", "a")
				s.Put("ns", "b", 2)
				s.Compact()
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(verb string) error {
						if verb == "list" {
							return pooltest.ErrUnreachable
						}
						return nil
					}
					s.Accepted = func(_ string, w *pooltest.Watch) {
						w.Data = pooltest.Frame("ADDED",
							s.Objects[types.NamespacedName{Namespace: "ns", Name: "b"}].JSON())
						end(w)
					}
				})
				time.Sleep(staleAfter + time.Millisecond)
				for time.Since(began) < 10*time.Minute {
					require.Error(t, l.Trust(staleAfter), "%s later", time.Since(began))
					time.Sleep(100 * time.Millisecond)
				}
				s.Set(func(s *pooltest.Server) { s.Fail, s.Accepted = nil, nil })
				pooltest.After(time.Minute)
				require.NoError(t, l.Trust(0))
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
			})
		})
	}
}

// TestHazardRefusalIsOverWithAStreamThatIsEndedAtOnce: a stream that merely
// begins does not lift a refusal.
func TestHazardRefusalIsOverWithAStreamThatIsEndedAtOnce(t *testing.T) {
	for name, end := range map[string]func(*pooltest.Watch){
		"refused": says(apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))),
		"end":     endedAtOnce["end"],
		"cut":     endedAtOnce["cut"],
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				pooltest.After(time.Minute)
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(verb string) error {
						if verb == "guard" {
							return nil
						}
						return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
					}
				})
				s.Cut(io.ErrUnexpectedEOF)
				pooltest.After(10 * time.Second)
				require.True(t, apierrors.IsForbidden(l.Trust(staleAfter)))
				refuse := s.Fail
				hastily(s, 0, end)
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(verb string) error {
						if verb == "watch" {
							return nil
						}
						return refuse(verb)
					}
				})
				pooltest.After(time.Minute)
				for range 1000 {
					if name == "refused" {
						require.True(t, apierrors.IsForbidden(l.Trust(time.Hour)), l.Trust(time.Hour))
					}
					time.Sleep(100 * time.Millisecond)
				}
				pooltest.After(staleAfter)
				require.Error(t, l.Trust(staleAfter))
				s.Set(func(s *pooltest.Server) { s.Fail, s.Accepted, s.Deaf = nil, nil, false })
				pooltest.After(time.Minute)
				require.NoError(t, l.Trust(0))
			})
		})
	}
}

// TestHazardRidersOfAnInformerWhoseStreamsEndAtOnce: its riders get an informer
// of their own, which may do better.
func TestHazardRidersOfAnInformerWhoseStreamsEndAtOnce(t *testing.T) {
	for name, end := range endedAtOnce {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				pooltest.AcquireSynced(t, p, pooltest.Everything)
				narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
				s.Set(func(s *pooltest.Server) {
					s.Accepted = func(_ string, w *pooltest.Watch) {
						if w.Key == pooltest.Everything {
							w.Data = nil
							end(w)
						}
					}
				})
				s.Cut(io.EOF)
				s.Put("ns", "a", 2)
				pooltest.After(3 * time.Minute)
				require.Equal(t, s.State(nil), pooltest.Contents(t, narrow))
				require.NoError(t, narrow.Trust(staleAfter))
			})
		})
	}
}

// TestHazardStreamsThatAreAllEndedAtOnceStopTheInformer: if lists succeed, they
// bring the changes.
func TestHazardStreamsThatAreAllEndedAtOnceStopTheInformer(t *testing.T) {
	for name, end := range endedAtOnce {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				s.Cut(io.EOF)
				s.Set(func(s *pooltest.Server) {
					s.Deaf = true
					s.Accepted = func(verb string, w *pooltest.Watch) {
						if verb == "watch" {
							w.Data = nil
						}
						end(w)
					}
				})
				for i := range 10 {
					s.Put("ns", "a", 2+i)
					s.Put("ns", fmt.Sprint("b", i), 1)
					time.Sleep(7 * time.Minute)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					require.Equal(t, s.State(nil), r.State())
				}
				if name != "gone" && name != "error" { // of which each, or every third, makes a list due
					require.Less(t, s.Count("stream")+s.Count("list"), 25,
						"it is no reason for one list after the other")
				}
				r.RequireSound(t)
			})
		})
	}
}

// TestStreamThatIsOpenForAWhileIsFollowed: a stream without changes and
// bookmarks belongs to a resource that does not change.
func TestStreamThatIsOpenForAWhileIsFollowed(t *testing.T) {
	for _, open := range []time.Duration{settling + time.Second, 20 * time.Second} {
		for name, end := range endedAtOnce {
			t.Run(fmt.Sprint(name, " after ", open), func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					lists := s.Count("stream")
					pooltest.After(time.Minute)
					unreachable(s)
					time.Sleep(staleAfter)
					s.Set(func(s *pooltest.Server) {
						s.Fail = nil
						s.Accepted = func(_ string, w *pooltest.Watch) {
							time.AfterFunc(open, func() { end(w) })
						}
					})
					pooltest.After(time.Minute)
					for range 6000 {
						require.NoError(t, l.Trust(staleAfter))
						time.Sleep(100 * time.Millisecond)
					}
					if name == "end" || name == "cut" || name == "busy" {
						require.Equal(t, lists, s.Count("stream"))
					}
				})
			})
		}
	}
}
