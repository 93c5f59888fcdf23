// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestIndexFindsWhatAVisitOfAllWantsFinds, whatever was wanted, found its
// informer and was released before.
func TestIndexFindsWhatAVisitOfAllWantsFinds(t *testing.T) {
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	var selections []Selection
	for _, gvk := range []schema.GroupVersionKind{configMaps.GVK, secrets} {
		for _, namespace := range []string{"", "one", "two"} {
			for _, labels := range []string{"", "app=x"} {
				for _, fields := range []string{"", FieldName + "=a", FieldName + "=b", FieldName + "!=a"} {
					selections = append(selections, Selection{gvk, namespace, labels, fields})
				}
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.connected.Store(true)
		random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test that can be repeated
		held := map[*Want]int{}
		for step := range 600 {
			if of := selections[random.IntN(len(selections))]; random.IntN(2) == 0 {
				held[s.Acquire(of)]++
			} else if w := s.Find(of); w != nil {
				s.Release(w)
				if held[w]--; held[w] == 0 {
					delete(held, w)
				}
			}
			if random.IntN(3) > 0 {
				synctest.Wait() // otherwise some kinds are not mapped yet
			}
			requireIndexed(t, s, held, secrets, fmt.Sprint("step ", step))
		}
		for w, n := range held {
			for range n {
				s.Release(w)
			}
		}
		require.Empty(t, *s.index.kinds.Load())
		require.Empty(t, s.index.keys)
	})
}

// requireIndexed compares what the index finds with a visit of all wants.
func requireIndexed(t *testing.T, s *site, held map[*Want]int, secrets schema.GroupVersionKind, at string) {
	t.Helper()
	readable := func(of func(*Want) bool) (found []*Want) {
		for w := range held {
			if lease, _, _ := s.Look(w); lease != nil && of(w) {
				found = append(found, w)
			}
		}
		return found
	}
	require.ElementsMatch(t, readable(func(*Want) bool { return true }), s.Readable(), at)
	for _, gvk := range []schema.GroupVersionKind{configMaps.GVK, secrets} {
		ofKind := func(w *Want) bool { return w.GVK == gvk }
		require.ElementsMatch(t, readable(ofKind), s.Of(gvk), at)
		for _, name := range []string{"a", "b", "c"} {
			var covering []*Want
			for _, c := range s.Covering(nil, gvk, client.ObjectKey{Namespace: "one", Name: name}) {
				covering = append(covering, c.Want)
			}
			require.ElementsMatch(t, readable(func(w *Want) bool {
				exact := w.FieldSelector == FieldName+"=a" || w.FieldSelector == FieldName+"=b"
				return ofKind(w) && w.Namespace != "two" && (!exact || w.FieldSelector == FieldName+"="+name)
			}), covering, "%s: %s", at, name)
		}
	}
	for w := range held {
		if lease, _, _ := s.Look(w); lease != nil {
			require.Contains(t, s.keyed(s.config.Pool.Serves(lease.Key())), w, at)
			require.Contains(t, s.keyed(s.config.Pool.Serves(lease.ServedBy())), w, at)
		}
	}
}
