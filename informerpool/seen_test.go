// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// read returns an object of a model server as a live read shows it.
func (s *modelServer) read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if o.name == name {
			u := &unstructured.Unstructured{}
			require.NoError(t, u.UnmarshalJSON([]byte(o.json())))
			return u
		}
	}
	require.Fail(t, "no object", name)
	return nil
}

// TestHazardReadOfAnotherHistoryIsToldAsDeleted: a read shows an object of the
// current history, while the informer is still on the previous one, which had
// come further. That the informer has passed the version proves nothing.
func TestHazardReadOfAnotherHistoryIsToldAsDeleted(t *testing.T) {
	for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "kept", 1)
				before := snapshot(s)
				for i := range 5 {
					s.put("ns", fmt.Sprint("lost", i), 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				s.set(func(s *modelServer) {
					s.objects, s.rv, s.log = before.objects, before.rv, nil
					for w := range s.watchers {
						w.end(io.ErrUnexpectedEOF)
					}
					clear(s.watchers)
				})
				s.put("ns", "read", 1)
				for i := range 9 {
					s.put("ns", fmt.Sprint("other", i), 1)
				}
				seen := s.read(t, "read")
				for range 3 {
					l.Seen(seen)
					after(time.Second)
				}
				s.speak(3)
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, s.state(nil), r.told())
				for _, e := range r.take() {
					require.False(t, strings.Contains(e, "Deleted") && strings.Contains(e, "read"), e)
				}
				r.requireSound(t)
			})
		})
	}
}

// TestHazardObjectSeenAndDeletedUnseen: the informer was further ahead when the
// read was recorded. The delete is delivered once a look at the server has
// proved it.
func TestHazardObjectSeenAndDeletedUnseen(t *testing.T) {
	for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "gone", 1)
				seen := s.read(t, "gone")
				s.delete("ns", "gone")
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				l.Seen(seen)
				after(10 * time.Second)
				synctest.Wait()
				require.Equal(t, []string{"Deleted ns/gone@101"}, r.take())
				s.speak(10)
				require.Empty(t, r.take())
			})
		})
	}
}

// TestHazardDeleteOfASeenObjectIsToldTwice: the stream brings the object that
// was seen before, and its delete. No other delete is due.
func TestHazardDeleteOfASeenObjectIsToldTwice(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		s.put("ns", "o", 1)
		l.Seen(s.read(t, "o"))
		synctest.Wait()
		s.delete("ns", "o")
		s.speak(10)
		require.Len(t, r.take(), 2)
		r.requireSound(t)
	})
}

// TestHazardSeenObjectComesAndGoesWhileTheHandlerIsBusy: a user that acted on a
// read must learn that the object is gone.
func TestHazardSeenObjectComesAndGoesWhileTheHandlerIsBusy(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		sub.Pause()
		s.put("ns", "o", 1)
		l.Seen(s.read(t, "o"))
		synctest.Wait()
		s.delete("ns", "o")
		synctest.Wait()
		sub.Continue()
		s.speak(10)
		require.Len(t, r.take(), 1)
	})
}

// picky refuses objects with the label refused.
func picky(o *informerpool.Options) {
	o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
		widgets.GroupResource(): func(u *unstructured.Unstructured) error {
			if u.GetLabels()["refused"] != "" {
				return fmt.Errorf("refused")
			}
			return nil
		},
	}
}

// TestHazardRefusedObjectThatWasReadIsDeleted: the informer never had the
// object, and a read of the server showed it.
func TestHazardRefusedObjectThatWasReadIsDeleted(t *testing.T) {
	bubble(t, picky, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		s.put("ns", "o", 1, "refused=yes")
		l.Seen(s.read(t, "o"))
		synctest.Wait()
		require.Empty(t, r.take())
		s.delete("ns", "o")
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/o@101"}, r.take())
	})
}

// TestHazardObjectThatWasReadLeavesASelection: a lease that is served by a
// wider informer has no record of an object that the informer first sees
// outside the lease's selection.
func TestHazardObjectThatWasReadLeavesASelection(t *testing.T) {
	bubble(t, picky, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything)
		narrow := everything
		narrow.LabelSelector = "app=x"
		l := acquireSynced(t, p, narrow)
		r := newRecorder()
		subscribe(t, p, l, r)
		s.put("ns", "o", 1, "refused=yes", "app=x")
		l.Seen(s.read(t, "o"))
		s.put("ns", "o", 2, "app=y")
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/o@101"}, r.take())
	})
}

// TestHazardSeenObjectOfTheVersionOfAnotherOne: two objects with one version
// belong to two histories, as when new writes have overtaken a restore. The
// cached object then proves nothing about the end of the one that was read, so
// the cache is compared with the server at once.
func TestHazardSeenObjectOfTheVersionOfAnotherOne(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything)
		narrow := everything
		narrow.LabelSelector = "app=x"
		l := acquireSynced(t, p, narrow)
		r := newRecorder()
		subscribe(t, p, l, r)
		s.put("ns", "o", 1, "app=y")
		synctest.Wait()
		s.set(func(s *modelServer) {
			name := types.NamespacedName{Namespace: "ns", Name: "o"}
			o := s.objects[name]
			o.uid, o.labels = "another", map[string]string{"app": "x"}
			s.objects[name] = o
		})
		l.Seen(s.read(t, "o"))
		after(10 * time.Second)
		require.Equal(t, []string{"Added ns/o@101"}, r.take())
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestHazardObjectThatWasReadIsForgottenByARetarget: a lease takes the objects
// its user has read along.
func TestHazardObjectThatWasReadIsForgottenByARetarget(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, in("ns"))
		r := newRecorder()
		subscribe(t, p, l, r)
		s.deafly(func() { s.put("ns", "o", 1) })
		l.Seen(s.read(t, "o"))
		s.deafly(func() { s.delete("ns", "o") })
		require.NoError(t, l.Retarget(t.Context(), everything))
		s.speak(1)
		require.Equal(t, []string{"Deleted ns/o@101"}, r.take())
	})
}
