// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

// TestHazardDeleteOfARefusedSuccessorKeepsTheCachedObject: an object is
// replaced, unseen, by one of its name that is refused. The delete of the
// successor proves that the cached object is gone, too, although its uid
// differs. Without that conclusion the cached object became known again, and
// its delete was never delivered.
func TestHazardDeleteOfARefusedSuccessorKeepsTheCachedObject(t *testing.T) {
	refusing := func(o *informerpool.Options) {
		o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{widgets.GroupResource(): func(u *unstructured.Unstructured) error {
			if u.GetLabels()["tier"] == "refused" {
				return errors.New("no")
			}
			return nil
		}}
	}
	for name, gone := range map[string]func(*modelServer){
		"stream": func(s *modelServer) { s.delete("ns", "a"); synctest.Wait() },
		"list":   func(s *modelServer) { s.away(func() { s.delete("ns", "a") }) },
		"streamed list": func(s *modelServer) {
			s.set(func(s *modelServer) { // it is deleted while the list shows it
				s.accepted = func(verb string, w *modelWatch) {
					if verb != "stream" {
						return
					}
					last := modelObject{namespace: "ns", name: "a", uid: "a-3", rv: s.rv, labels: map[string]string{"tier": "refused"}}
					w.data = append(append(frame("ADDED", last.json()), frame("DELETED", last.json())...), w.data...)
				}
			})
			s.away(func() { s.delete("ns", "a") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, refusing, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "a", 1)
				s.put("ns", "b", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				s.away(func() {
					s.delete("ns", "a")
					s.put("ns", "a", 2, "tier=refused")
				})
				require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
				r.take()
				gone(s)
				require.NoError(t, l.Unknown("ns", "a"))
				_, err := l.Get("ns", "a")
				require.True(t, apierrors.IsNotFound(err), err)
				require.Equal(t, []string{"Deleted ns/a@101"}, r.take())
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, s.state(nil), r.told())
				time.Sleep(time.Minute)
				require.Empty(t, r.take())
				r.requireSound(t)
			})
		})
	}
}

// TestDeleteOfAnEarlierRefusedObjectKeepsItsSuccessor: a late delete belongs to
// the earlier object.
func TestDeleteOfAnEarlierRefusedObjectKeepsItsSuccessor(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 2000 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		push(s, "DELETED", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":7,"namespace":"ns","name":"a","uid":"before","resourceVersion":"101"}}`)
		synctest.Wait()
		require.Empty(t, r.take())
		require.Equal(t, s.state(nil), contents(t, l))
	})
}
