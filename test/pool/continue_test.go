// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// narrower are the keys of riders on an informer for everything.
func narrower() map[string]informerpool.Key {
	named, labelled := pooltest.In("ns"), pooltest.Everything
	named.FieldSelector = "metadata.name=a"
	labelled.LabelSelector = "app=x"
	return map[string]informerpool.Key{"namespace": pooltest.In("ns"), "name": named, "label": labelled}
}

// requests returns the number of requests since an earlier call, by verb.
func requests(s *pooltest.Server) func() map[string]int {
	verbs := []string{"list", "stream", "watch", "guard", "audit"}
	before := map[string]int{}
	since := func() map[string]int {
		out := map[string]int{}
		for _, v := range verbs {
			if n := s.Count(v); n != before[v] {
				out[v], before[v] = n-before[v], n
			}
		}
		return out
	}
	since()
	return since
}

// TestHandOverSendsOneWatchAndNoList: an informer that a rider gets begins with
// the objects and at the version of the wider one, whose end the rider does not
// notice.
func TestHandOverSendsOneWatchAndNoList(t *testing.T) {
	for name, key := range narrower() {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1, "app=x")
				s.Put("other", "b", 1, "app=y")
				wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
				rider := pooltest.AcquireSynced(t, p, key)
				require.NoError(t, rider.AddIndex("name",
					func(o *informerpool.Object) []string { return []string{o.GetName()} }))
				r := pooltest.Record(t, p, rider)
				pooltest.After(10 * time.Second)
				require.Equal(t, []string{"Added ns/a@101"}, r.Take())
				sent := requests(s)

				wide.ReleaseNow()
				require.Equal(t, key, rider.ServedBy(), "at once")
				require.Equal(t, "102", rider.ResourceVersion())
				require.NoError(t, rider.Trust(time.Minute))
				found, _, err := rider.List(informerpool.Query{Index: "name", Value: "a"})
				require.NoError(t, err)
				require.Len(t, found, 1)
				pooltest.After(time.Second)
				require.Equal(t, map[string]int{"watch": 1}, sent())
				require.Equal(t, []informerpool.Key{key}, p.Keys())
				require.NoError(t, rider.Trust(0))

				s.Put("ns", "a", 2, "app=x")
				s.Delete("ns", "a")
				synctest.Wait()
				require.Empty(t, pooltest.Contents(t, rider))
				require.Empty(t, r.State())
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardChangesBeforeTheNarrowWatchBegins: the watch of a rider's informer
// begins where the wider one was, so that nothing is lost or repeated that
// happens until then, and an object that leaves the selection is deleted.
func TestHazardChangesBeforeTheNarrowWatchBegins(t *testing.T) {
	for _, lagging := range []bool{false, true} {
		t.Run(fmt.Sprint("lagging ", lagging), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "goes", 1, "app=x")
				s.Put("ns", "leaves", 1, "app=x")
				s.Put("ns", "changes", 1, "app=x")
				s.Put("ns", "enters", 1, "app=y")
				wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
				rider := pooltest.AcquireSynced(t, p, narrower()["label"])
				r := pooltest.Record(t, p, rider)
				pooltest.After(10 * time.Second)
				require.Len(t, r.Take(), 3)
				sent := requests(s)

				block := make(chan struct{})
				s.Set(func(s *pooltest.Server) { s.Block = block; s.Deaf = lagging })
				if lagging { // the wider informer has not come as far as its server
					s.Put("ns", "changes", 2, "app=x")
				}
				wide.ReleaseNow()
				s.Put("ns", "changes", 3, "app=x")
				s.Put("ns", "leaves", 2, "app=y")
				s.Put("ns", "enters", 2, "app=x")
				s.Delete("ns", "goes")
				s.Set(func(s *pooltest.Server) { s.Block = nil; s.Deaf = false })
				close(block)
				pooltest.After(time.Second)
				require.Equal(t, map[string]int{"watch": 1}, sent())
				events := r.Take()
				require.Len(t, pooltest.Without(events, "changes"), 3, events)
				want := s.State(func(o pooltest.Object) bool { return o.Labels["app"] == "x" })
				require.Len(t, want, 2)
				require.Equal(t, want, pooltest.Contents(t, rider))
				require.Equal(t, want, r.State())
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardVersionIsForgottenBeforeTheNarrowWatchBegins: the informer lists at
// once, reports no failure, and delivers what has changed.
func TestHazardVersionIsForgottenBeforeTheNarrowWatchBegins(t *testing.T) {
	var failed []error
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.OnFailed = func(_ informerpool.Key, err error) { failed = append(failed, err) }
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, rider)
		pooltest.After(10 * time.Second)
		r.Take()
		sent := requests(s)
		block := make(chan struct{})
		s.Set(func(s *pooltest.Server) { s.Block = block })
		wide.ReleaseNow()
		s.Delete("ns", "a")
		s.Put("ns", "b", 2)
		s.Set(func(s *pooltest.Server) { s.Compacted, s.Block = s.Version, nil })
		close(block)
		synctest.Wait() // no time passes
		require.Equal(t, map[string]int{"watch": 1, "stream": 1}, sent())
		require.ElementsMatch(t, []string{"Deleted ns/a@101", "Updated ns/b@104"}, r.Take())
		require.NoError(t, rider.Trust(0))
		require.Empty(t, failed)
		r.RequireSound(t)
	})
}

// TestHazardRefusedInformerIsContinued: the server refuses the wider informer.
// That stands for the rider until the server accepts its own watch, which
// begins where the wider one ended and brings what has happened since.
func TestHazardRefusedInformerIsContinued(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, rider)
		pooltest.After(10 * time.Second)
		r.Take()
		sent := requests(s)
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(informerpool.Key) error {
				return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
			}
		})
		s.Cut(errors.New("cut"))
		pooltest.After(5 * time.Second)
		require.Equal(t, pooltest.In("ns"), rider.ServedBy())
		require.True(t, apierrors.IsForbidden(rider.Trust(time.Hour)), "nothing has lifted it")
		s.Put("ns", "a", 2)
		s.Set(func(s *pooltest.Server) { s.Refuse = forbidden(pooltest.Everything) })
		pooltest.After(time.Minute)
		require.NoError(t, rider.Trust(0))
		require.Zero(t, sent()["list"])
		require.Equal(t, []string{"Updated ns/a@102"}, r.Take())
		r.RequireSound(t)
	})
}

// TestHazardRestoredServerIsContinued: etcd is restored after the wider
// informer's watch broke, and before its rider is on its own. The history
// question is asked as in any resume.
func TestHazardRestoredServerIsContinued(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		before := pooltest.Copy(s)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, rider)
		s.Put("ns", "b", 1)
		pooltest.After(10 * time.Second)
		r.Take()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(string) error { return pooltest.ErrUnreachable }
		})
		s.Cut(errors.New("cut"))
		pooltest.After(time.Second)
		wide.ReleaseNow()
		require.Equal(t, pooltest.In("ns"), rider.ServedBy())
		s.Restore(before, 0)
		s.Set(func(s *pooltest.Server) { s.Fail = nil })
		pooltest.After(time.Minute)
		require.Equal(t, s.State(nil), pooltest.Contents(t, rider))
		require.Equal(t, []string{"Deleted ns/b@102"}, r.Take())
		require.EqualValues(t, 1, rider.Status().Rollbacks)
	})
}

// TestHazardObjectOfUnknownStateIsHandedOver: an object that was refused is
// unknown to the rider's informer, too, which lists.
func TestHazardObjectOfUnknownStateIsHandedOver(t *testing.T) {
	refusing := func(o *informerpool.Options) {
		o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
			pooltest.Widgets.GroupResource(): func(u *unstructured.Unstructured) error {
				if u.GetLabels()["tier"] == "refused" {
					return errors.New("no")
				}
				return nil
			},
		}
	}
	pooltest.Bubble(t, refusing, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, rider)
		s.Put("ns", "a", 2, "tier=refused")
		pooltest.After(10 * time.Second)
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
		sent := requests(s)
		s.Set(func(s *pooltest.Server) { s.Block = pooltest.Hang() })
		wide.ReleaseNow()
		synctest.Wait()
		require.ErrorIs(t, rider.Unknown("ns", "a"), informerpool.ErrRefused)
		require.Equal(t, map[string]int{"stream": 1}, sent())
		require.Empty(t, r.Take())
	})
}

// TestHazardAuditsArePutOffByHandOvers: an informer that continues another one
// is audited when that one was due.
func TestHazardAuditsArePutOffByHandOvers(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = time.Hour },
		func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "a", 1)
			key := pooltest.In("ns")
			key.LabelSelector = "app"
			wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
			middle := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
			pooltest.AcquireSynced(t, p, key)
			pooltest.After(25 * time.Minute)
			wide.ReleaseNow()
			pooltest.After(25 * time.Minute)
			middle.ReleaseNow()
			pooltest.After(10 * time.Minute)
			require.Positive(t, s.Count("audit"), "within an hour of the first list")
		})
}

// TestHazardKeyHasAnInformerThatIsBehind: while the wider informer was
// interrupted, its rider's key got an informer, which lags. The rider does not
// go back, and the leases of that informer go forward.
func TestHazardKeyHasAnInformerThatIsBehind(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, rider)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "stream" {
					return nil
				}
				return pooltest.ErrUnreachable
			}
		})
		s.Cut(errors.New("cut"))
		pooltest.After(10 * time.Second)
		own := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		theirs := pooltest.Record(t, p, own)
		pooltest.After(time.Second)
		require.Equal(t, pooltest.In("ns"), own.ServedBy())
		require.Equal(t, pooltest.Everything, rider.ServedBy())
		s.Set(func(s *pooltest.Server) { s.Fail = nil; s.Deaf = true })
		s.Put("ns", "a", 2) // the informer of the narrow key does not hear of it
		pooltest.After(time.Minute)
		require.Equal(t, "102", rider.ResourceVersion())
		require.Equal(t, "101", own.ResourceVersion())

		wide.ReleaseNow()
		synctest.Wait()
		require.Equal(t, []informerpool.Key{pooltest.In("ns")}, p.Keys())
		for _, l := range []*informerpool.Lease{rider, own} {
			require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		}
		require.Equal(t, []string{"Added ns/a@101", "Updated ns/a@102"}, r.Take())
		require.Equal(t, []string{"Added ns/a@101", "Updated ns/a@102"}, theirs.Take())
		r.RequireSound(t)
		theirs.RequireSound(t)
	})
}

// TestHazardOutageGivesEachRiderAnInformerOfItsOwn: while the whole cluster is
// away, an informer of its own would serve a rider no better.
func TestHazardOutageGivesEachRiderAnInformerOfItsOwn(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		pooltest.After(10 * time.Second)
		s.FailWith(pooltest.ErrUnreachable)
		s.Cut(errors.New("cut"))
		pooltest.After(10 * time.Minute)
		s.Heal()
		p.Wake(pooltest.Everything.Cluster)
		pooltest.After(time.Minute)
		require.Equal(t, []informerpool.Key{pooltest.Everything}, p.Keys())
		require.NoError(t, rider.Trust(0))
	})
}
