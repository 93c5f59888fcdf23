// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardReadOfAnotherHistoryIsToldAsDeleted: a read shows an object of the
// current history, while the informer is still on the previous one, which had
// come further. That the informer has passed the version proves nothing.
func TestHazardReadOfAnotherHistoryIsToldAsDeleted(t *testing.T) {
	for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T,
				s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "kept", 1)
				before := pooltest.Copy(s)
				for i := range 5 {
					s.Put("ns", fmt.Sprint("lost", i), 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				r.Take()
				s.Set(func(s *pooltest.Server) {
					s.Objects, s.Version, s.Log = before.Objects, before.Version, nil
					for w := range s.Watchers {
						w.End(io.ErrUnexpectedEOF)
					}
					clear(s.Watchers)
				})
				s.Put("ns", "read", 1)
				for i := range 9 {
					s.Put("ns", fmt.Sprint("other", i), 1)
				}
				seen := s.Read(t, "read")
				for range 3 {
					l.Seen(seen)
					pooltest.After(time.Second)
				}
				s.Speak(3)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, s.State(nil), r.State())
				for _, e := range r.Take() {
					require.False(t, strings.Contains(e, "Deleted") && strings.Contains(e, "read"), e)
				}
				r.RequireSound(t)
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
			pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T,
				s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "gone", 1)
				seen := s.Read(t, "gone")
				s.Delete("ns", "gone")
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				l.Seen(seen)
				pooltest.After(10 * time.Second)
				synctest.Wait()
				require.Equal(t, []string{"Deleted ns/gone@101"}, r.Take())
				s.Speak(10)
				require.Empty(t, r.Take())
			})
		})
	}
}

// TestHazardDeleteOfASeenObjectIsToldTwice: the stream brings the object that
// was seen before, and its delete. No other delete is due.
func TestHazardDeleteOfASeenObjectIsToldTwice(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		s.Put("ns", "o", 1)
		l.Seen(s.Read(t, "o"))
		synctest.Wait()
		s.Delete("ns", "o")
		s.Speak(10)
		require.Len(t, r.Take(), 2)
		r.RequireSound(t)
	})
}

// TestHazardSeenObjectComesAndGoesWhileTheHandlerIsBusy: a user that acted on a
// read must learn that the object is gone.
func TestHazardSeenObjectComesAndGoesWhileTheHandlerIsBusy(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		sub.Pause()
		s.Put("ns", "o", 1)
		l.Seen(s.Read(t, "o"))
		synctest.Wait()
		s.Delete("ns", "o")
		synctest.Wait()
		sub.Continue()
		s.Speak(10)
		require.Len(t, r.Take(), 1)
	})
}

// picky refuses objects with the label refused.
func picky(o *informerpool.Options) {
	o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
		pooltest.Widgets.GroupResource(): func(u *unstructured.Unstructured) error {
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
	pooltest.Bubble(t, picky, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		s.Put("ns", "o", 1, "refused=yes")
		l.Seen(s.Read(t, "o"))
		synctest.Wait()
		require.Empty(t, r.Take())
		s.Delete("ns", "o")
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/o@101"}, r.Take())
	})
}

// TestHazardObjectThatWasReadLeavesASelection: a lease that is served by a
// wider informer has no record of an object that the informer first sees
// outside the lease's selection.
func TestHazardObjectThatWasReadLeavesASelection(t *testing.T) {
	pooltest.Bubble(t, picky, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.Everything
		narrow.LabelSelector = "app=x"
		l := pooltest.AcquireSynced(t, p, narrow)
		r := pooltest.Record(t, p, l)
		s.Put("ns", "o", 1, "refused=yes", "app=x")
		l.Seen(s.Read(t, "o"))
		s.Put("ns", "o", 2, "app=y")
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/o@101"}, r.Take())
	})
}

// TestHazardSeenObjectOfTheVersionOfAnotherOne: two objects with one version
// belong to two histories, as when new writes have overtaken a restore. The
// cached object then proves nothing about the end of the one that was read, so
// the cache is compared with the server at once.
func TestHazardSeenObjectOfTheVersionOfAnotherOne(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.Everything
		narrow.LabelSelector = "app=x"
		l := pooltest.AcquireSynced(t, p, narrow)
		r := pooltest.Record(t, p, l)
		s.Put("ns", "o", 1, "app=y")
		synctest.Wait()
		s.Set(func(s *pooltest.Server) {
			name := types.NamespacedName{Namespace: "ns", Name: "o"}
			o := s.Objects[name]
			o.UID, o.Labels = "another", map[string]string{"app": "x"}
			s.Objects[name] = o
		})
		l.Seen(s.Read(t, "o"))
		pooltest.After(10 * time.Second)
		require.Equal(t, []string{"Added ns/o@101"}, r.Take())
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardObjectThatWasReadIsForgottenByARetarget: a lease takes the objects
// its user has read along.
func TestHazardObjectThatWasReadIsForgottenByARetarget(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, l)
		s.Deafly(func() { s.Put("ns", "o", 1) })
		l.Seen(s.Read(t, "o"))
		s.Deafly(func() { s.Delete("ns", "o") })
		require.NoError(t, l.Retarget(t.Context(), pooltest.Everything))
		s.Speak(1)
		require.Equal(t, []string{"Deleted ns/o@101"}, r.Take())
	})
}

// TestHazardObjectThatWasReadIsForgottenByAHandOver: a lease takes the objects
// its user has read to an informer that listed after they were gone. No later
// list or frame of that informer shows so, and it is compared with its server
// at once.
func TestHazardObjectThatWasReadIsForgottenByAHandOver(t *testing.T) {
	ways := map[string]func(*testing.T, *pooltest.Server, *informerpool.Pool, func(*informerpool.Lease)){
		"rider": func(t *testing.T, s *pooltest.Server, p *informerpool.Pool, read func(*informerpool.Lease)) {
			wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
			read(pooltest.AcquireSynced(t, p, pooltest.In("ns")))
			wide.Release()
			s.Compact() // or the rider's own watch would bring the object and its deletion
		},
		"retarget": func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool, read func(*informerpool.Lease)) {
			l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
			read(l)
			pooltest.AcquireSynced(t, p, pooltest.Everything)
			require.NoError(t, l.Retarget(t.Context(), pooltest.Everything))
		},
	}
	for name, handOver := range ways {
		for how, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
			t.Run(name+" "+how, func(t *testing.T) {
				pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T,
					s *pooltest.Server, p *informerpool.Pool) {
					r := pooltest.NewRecorder()
					handOver(t, s, p, func(l *informerpool.Lease) {
						pooltest.Subscribe(t, p, l, r)
						s.Deafly(func() { s.Put("ns", "o", 1) })
						l.Seen(s.Read(t, "o"))
						s.Deafly(func() { s.Delete("ns", "o") })
					})
					pooltest.After(time.Minute) // the wider informer lingers
					require.Equal(t, []string{"Deleted ns/o@101"}, r.Take())
					s.Speak(3)
					require.Empty(t, r.Take())
				})
			})
		}
	}
}
