// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestIndexFindsWhatAVisitOfAllWantsFinds, whatever was wanted, found its
// informer and was released before.
func TestIndexFindsWhatAVisitOfAllWantsFinds(t *testing.T) {
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	var selections []Selection
	for _, gvk := range []schema.GroupVersionKind{configMaps.GVK, secrets} {
		for _, namespace := range []string{"", "one", "two"} {
			for _, labels := range []string{"", "app=x", "app"} {
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
		for step := range repeat.Times(600) {
			if of := selections[random.IntN(len(selections))]; random.IntN(2) == 0 {
				held[s.Acquire(of)]++
			} else if w := s.Find(of); w != nil {
				s.Release(w, (*informerpool.Lease).Release)
				if held[w]--; held[w] == 0 {
					delete(held, w)
				}
			}
			if random.IntN(3) == 0 {
				continue // the next step may find kinds that are not mapped yet
			}
			synctest.Wait() // or a want is bound between the visit and the question
			requireIndexed(t, s, held, selections, secrets, fmt.Sprint("step ", step))
		}
		for w, n := range held {
			for range n {
				s.Release(w, (*informerpool.Lease).Release)
			}
		}
		require.Empty(t, *s.Index.kinds.Load())
		require.Empty(t, s.Index.keys)
	})
}

// requireIndexed compares what the index finds with a visit of all wants.
func requireIndexed(t *testing.T, s *site, held map[*Want]int, selections []Selection,
	secrets schema.GroupVersionKind, at string,
) {
	t.Helper()
	readable := func(of func(*Want) bool) (found []*Want) {
		for w := range held {
			if lease, _, _ := s.Look(w); lease != nil && of(w) {
				found = append(found, w)
			}
		}
		return found
	}
	requireSame(t, readable(func(*Want) bool { return true }), s.Index.Readable(), at)
	for _, gvk := range []schema.GroupVersionKind{configMaps.GVK, secrets} {
		ofKind := func(w *Want) bool { return w.GVK == gvk }
		requireSame(t, readable(ofKind), s.Index.Of(gvk), at)
		for _, name := range []string{"a", "b", "c"} {
			key := client.ObjectKey{Namespace: "one", Name: name}
			may := func(w *Want) bool { return ofKind(w) && w.MaySelect(key, labels.Set{"app": "x"}) }
			covering := s.Index.Covering(nil, gvk, key)
			requireSame(t, readable(func(w *Want) bool { return may(w) && w.Decides(name) }), covering,
				fmt.Sprintf("%s: %s", at, name))
			requireSame(t, readable(func(w *Want) bool {
				return ofKind(w) && w.Namespace != "two" && !w.decides()
			}), s.Index.Partial(gvk, key.Namespace), fmt.Sprintf("%s: %s", at, name))
			for _, has := range []labels.Set{nil, {"app": "x"}, {"app": "y", "b": "c"}} {
				requireSame(t, readable(func(w *Want) bool { return ofKind(w) && w.MaySelect(key, has) }),
					s.Index.Selecting(gvk, key, has), fmt.Sprintf("%s: %s %s", at, name, has))
			}
		}
	}
	for _, id := range selections {
		requireSame(t, readable(func(w *Want) bool {
			return w.GVK == id.GVK && (id.Namespace == "" || id.Namespace == w.Namespace) &&
				(id.LabelSelector == "" || id.LabelSelector == w.LabelSelector) &&
				(id.FieldSelector == "" || id.FieldSelector == w.FieldSelector)
		}), s.Index.Covered(id), fmt.Sprintf("%s: %v", at, id))
		o := &client.ListOptions{Namespace: id.Namespace}
		o.LabelSelector, _ = labels.Parse(id.LabelSelector)
		o.FieldSelector, _ = fields.ParseSelector(id.FieldSelector)
		requireSame(t, readable(func(w *Want) bool {
			return w.GVK == id.GVK && (w.Namespace == "" || id.Namespace == w.Namespace) &&
				(w.LabelSelector == "" || id.LabelSelector == w.LabelSelector) &&
				(w.FieldSelector == "" || id.FieldSelector == w.FieldSelector)
		}), s.Index.Listing(id.GVK, o), fmt.Sprintf("%s: %v", at, id))
	}
	for w := range held {
		if lease, _, _ := s.Look(w); lease != nil {
			require.Contains(t, s.Index.Keyed(lease.Key()), w, at)
			require.Contains(t, s.config.Pool.Serves(lease.ServedBy()), lease.Key(), at)
		}
	}
}

// requireSame compares wants without printing all that they refer to.
func requireSame(t *testing.T, want, got []*Want, at string) {
	t.Helper()
	names := func(of []*Want) (names []string) {
		for _, w := range of {
			names = append(names, fmt.Sprint(w.Selection))
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, names(want), names(got), at)
}
