// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
	return frame("ERROR", b)
}

// endedAtOnce lists the ways in which a server begins a stream and ends it
// without ever showing whether anything has changed.
var endedAtOnce = map[string]func(w *modelWatch){
	"end":         func(w *modelWatch) { w.end(io.EOF) },
	"cut":         func(w *modelWatch) { w.end(io.ErrUnexpectedEOF) },
	"reset":       func(w *modelWatch) { w.end(errors.New("connection reset by peer")) },
	"half":        func(w *modelWatch) { w.push([]byte(`{"type":"BOOKMARK","obj`)); w.end(io.ErrUnexpectedEOF) },
	"gone":        says(apierrors.NewResourceExpired("too old resource version")),
	"error":       says(apierrors.NewInternalError(errors.New("no"))),
	"unavailable": says(apierrors.NewServiceUnavailable("no")),
	"timeout":     says(apierrors.NewTimeoutError("no", 0)),
	"busy":        says(apierrors.NewTooManyRequestsError("no")),
	"not known":   says(apierrors.NewUnauthorized("no")),
	"bookmark":    repeats(func(w *modelWatch) []byte { return bookmarkFrame(w.from, false) }),
	"event": repeats(func(w *modelWatch) []byte {
		for _, e := range w.server.log {
			if e.rv == w.from {
				return frame(e.frame, e.object.json())
			}
		}
		return nil
	}),
}

// repeats repeats a frame at the version from which the watch is resumed.
func repeats(frame func(w *modelWatch) []byte) func(w *modelWatch) {
	return func(w *modelWatch) {
		if w.from > 0 { // not a list
			w.push(frame(w))
		}
		w.end(io.ErrUnexpectedEOF)
	}
}

func says(err apierrors.APIStatus) func(w *modelWatch) {
	return func(w *modelWatch) { w.push(errorFrame(err)); w.end(io.EOF) }
}

// hastily makes a server accept each watch, and end it after a time. Lists
// fail.
func (s *modelServer) hastily(within time.Duration, end func(w *modelWatch)) {
	s.set(func(s *modelServer) {
		s.fail = func(verb string) error {
			if verb == "list" || verb == "stream" {
				return errUnreachable
			}
			return nil
		}
		s.deaf = true
		s.accepted = func(_ string, w *modelWatch) {
			w.data = nil // the changes it owes
			if within == 0 {
				end(w)
				return
			}
			time.AfterFunc(within, func() { end(w) })
		}
	})
}

// unreachable cuts all streams, and lets no request succeed.
func (s *modelServer) unreachable() {
	s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
	s.cut(io.ErrUnexpectedEOF)
}

// TestHazardResumeThatIsEndedAtOnceRenewsNothing: a stream that a server
// accepts and ends at once proves nothing about its state, however often that
// happens.
func TestHazardResumeThatIsEndedAtOnceRenewsNothing(t *testing.T) {
	for name, end := range endedAtOnce {
		for _, within := range []time.Duration{0, settling - time.Second} {
			t.Run(fmt.Sprint(name, " within ", within), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "a", 1)
					l := acquireSynced(t, p, everything)
					after(time.Minute)
					s.put("ns", "a", 2)
					after(time.Second)
					s.unreachable()
					began := time.Now()
					s.put("ns", "a", 3) // unseen
					time.Sleep(staleAfter - time.Minute)
					s.hastily(within, end)
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
						require.False(t, status.LastProof.After(followed), status.LastProof.Sub(began))
						require.True(t, p.ClusterSummary(everything.Cluster).OldestProof.Equal(status.LastProof))
						time.Sleep(100 * time.Millisecond)
					}
					s.set(func(s *modelServer) { s.fail, s.accepted, s.deaf = nil, nil, false })
					after(time.Minute)
					require.NoError(t, l.Trust(0))
					require.Equal(t, s.state(nil), contents(t, l))
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
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "a", 1)
				s.put("ns", "b", 1)
				l := acquireSynced(t, p, everything)
				after(time.Minute)
				s.unreachable()
				began := time.Now()
				s.delete("ns", "a")
				s.put("ns", "b", 2)
				s.compact()
				s.set(func(s *modelServer) {
					s.fail = func(verb string) error {
						if verb == "list" {
							return errUnreachable
						}
						return nil
					}
					s.accepted = func(_ string, w *modelWatch) {
						w.data = frame("ADDED", s.objects[types.NamespacedName{Namespace: "ns", Name: "b"}].json())
						end(w)
					}
				})
				time.Sleep(staleAfter + time.Millisecond)
				for time.Since(began) < 10*time.Minute {
					require.Error(t, l.Trust(staleAfter), "%s later", time.Since(began))
					time.Sleep(100 * time.Millisecond)
				}
				s.set(func(s *modelServer) { s.fail, s.accepted = nil, nil })
				after(time.Minute)
				require.NoError(t, l.Trust(0))
				require.Equal(t, s.state(nil), contents(t, l))
			})
		})
	}
}

// TestHazardRefusalIsOverWithAStreamThatIsEndedAtOnce: a stream that merely
// begins does not lift a refusal.
func TestHazardRefusalIsOverWithAStreamThatIsEndedAtOnce(t *testing.T) {
	for name, end := range map[string]func(*modelWatch){
		"refused": says(apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))),
		"end":     endedAtOnce["end"],
		"cut":     endedAtOnce["cut"],
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				l := acquireSynced(t, p, everything)
				after(time.Minute)
				s.set(func(s *modelServer) {
					s.fail = func(verb string) error {
						if verb == "guard" {
							return nil
						}
						return apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
					}
				})
				s.cut(io.ErrUnexpectedEOF)
				after(10 * time.Second)
				require.True(t, apierrors.IsForbidden(l.Trust(staleAfter)))
				refuse := s.fail
				s.hastily(0, end)
				s.set(func(s *modelServer) {
					s.fail = func(verb string) error {
						if verb == "watch" {
							return nil
						}
						return refuse(verb)
					}
				})
				after(time.Minute)
				for range 1000 {
					if name == "refused" {
						require.True(t, apierrors.IsForbidden(l.Trust(time.Hour)), l.Trust(time.Hour))
					}
					time.Sleep(100 * time.Millisecond)
				}
				after(staleAfter)
				require.Error(t, l.Trust(staleAfter))
				s.set(func(s *modelServer) { s.fail, s.accepted, s.deaf = nil, nil, false })
				after(time.Minute)
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
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "a", 1)
				acquireSynced(t, p, everything)
				narrow := acquireSynced(t, p, in("ns"))
				s.set(func(s *modelServer) {
					s.accepted = func(_ string, w *modelWatch) {
						if w.key == everything {
							w.data = nil
							end(w)
						}
					}
				})
				s.cut(io.EOF)
				s.put("ns", "a", 2)
				after(3 * time.Minute)
				require.Equal(t, s.state(nil), contents(t, narrow))
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
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "a", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				s.cut(io.EOF)
				s.set(func(s *modelServer) {
					s.deaf = true
					s.accepted = func(verb string, w *modelWatch) {
						if verb == "watch" {
							w.data = nil
						}
						end(w)
					}
				})
				for i := range 10 {
					s.put("ns", "a", 2+i)
					s.put("ns", fmt.Sprint("b", i), 1)
					time.Sleep(7 * time.Minute)
					require.Equal(t, s.state(nil), contents(t, l))
					require.Equal(t, s.state(nil), r.told())
				}
				if name != "gone" && name != "error" { // of which each, or every third, makes a list due
					require.Less(t, s.count("stream")+s.count("list"), 25, "it is no reason for one list after the other")
				}
				r.requireSound(t)
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
				bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "a", 1)
					l := acquireSynced(t, p, everything)
					lists := s.count("stream")
					after(time.Minute)
					s.unreachable()
					time.Sleep(staleAfter)
					s.set(func(s *modelServer) {
						s.fail = nil
						s.accepted = func(_ string, w *modelWatch) {
							time.AfterFunc(open, func() { end(w) })
						}
					})
					after(time.Minute)
					for range 6000 {
						require.NoError(t, l.Trust(staleAfter))
						time.Sleep(100 * time.Millisecond)
					}
					if name == "end" || name == "cut" || name == "busy" {
						require.Equal(t, lists, s.count("stream"))
					}
				})
			})
		}
	}
}
