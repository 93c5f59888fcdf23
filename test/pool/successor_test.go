// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"errors"
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

// TestHazardDeleteOfARefusedSuccessorKeepsTheCachedObject: an object is
// replaced, unseen, by one of its name that is refused. The delete of the
// successor proves that the cached object is gone, too, although its uid
// differs. Without that conclusion the cached object became known again, and
// its delete was never delivered.
func TestHazardDeleteOfARefusedSuccessorKeepsTheCachedObject(t *testing.T) {
	refusing := func(o *informerpool.Options) {
		o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{pooltest.Widgets.GroupResource(): func(
			u *unstructured.Unstructured) error {
			if u.GetLabels()["tier"] == "refused" {
				return errors.New("no")
			}
			return nil
		}}
	}
	for name, gone := range map[string]func(*pooltest.Server){
		"stream": func(s *pooltest.Server) { s.Delete("ns", "a"); synctest.Wait() },
		"list":   func(s *pooltest.Server) { s.Away(func() { s.Delete("ns", "a") }) },
		"streamed list": func(s *pooltest.Server) {
			s.Set(func(s *pooltest.Server) { // it is deleted while the list shows it
				s.Accepted = func(verb string, w *pooltest.Watch) {
					if verb != "stream" {
						return
					}
					last := pooltest.Object{Namespace: "ns", Name: "a", UID: "a-3", Version: s.Version,
						Labels: map[string]string{"tier": "refused"}}
					w.Data = append(append(pooltest.Frame("ADDED", last.JSON()),
						pooltest.Frame("DELETED", last.JSON())...), w.Data...)
				}
			})
			s.Away(func() { s.Delete("ns", "a") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, refusing, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				s.Put("ns", "b", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				s.Away(func() {
					s.Delete("ns", "a")
					s.Put("ns", "a", 2, "tier=refused")
				})
				require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
				r.Take()
				gone(s)
				require.NoError(t, l.Unknown("ns", "a"))
				_, err := l.Get("ns", "a")
				require.True(t, apierrors.IsNotFound(err), err)
				require.Equal(t, []string{"Deleted ns/a@101"}, r.Take())
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, s.State(nil), r.State())
				time.Sleep(time.Minute)
				require.Empty(t, r.Take())
				r.RequireSound(t)
			})
		})
	}
}

// TestDeleteOfAnEarlierRefusedObjectKeepsItsSuccessor: a late delete belongs to
// the earlier object.
func TestDeleteOfAnEarlierRefusedObjectKeepsItsSuccessor(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 2000 }, func(t *testing.T, s *pooltest.Server,
		p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		pooltest.Push(s, "DELETED",
			pooltest.WidgetWith(`"labels":7,"namespace":"ns","name":"a","uid":"before","resourceVersion":"101"`))
		synctest.Wait()
		require.Empty(t, r.Take())
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}
