// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// TestOverlappingInformersAreThoseThatAVisitFinds, whatever was acquired and
// released before. Beside a thousand informers of single objects, that of
// another one overlaps with none of them.
func TestOverlappingInformersAreThoseThatAVisitFinds(t *testing.T) {
	unreachable := func(types.NamespacedName) (dynamic.Interface, error) { return nil, context.Canceled }
	pool, err := New(Options{Source: FromDynamic(unreachable)})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(context.Background())) }()
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test that can be repeated
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var held []*Lease
	for range 300 {
		if len(held) > 20 || len(held) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(held))
			held[at].ReleaseNow()
			held = slices.Delete(held, at, at+1)
			continue
		}
		l, err := pool.Acquire(t.Context(), Key{
			Cluster:       types.NamespacedName{Name: pick("a", "b")},
			Resource:      schema.GroupVersionResource{Version: "v1", Resource: pick("configmaps", "secrets")},
			Namespace:     pick("", "one", "two"),
			LabelSelector: pick("", "app=x"),
			FieldSelector: pick(
				"", "metadata.name=a", "metadata.name=b", "metadata.name!=a", "metadata.name=a,spec.x=y"),
		})
		require.NoError(t, err)
		held = append(held, l)
		for _, l := range held {
			requireOverlapping(t, l.at.informer(), held)
		}
	}
	for n := range 1000 {
		l, err := pool.Acquire(t.Context(), Key{
			Cluster:       types.NamespacedName{Name: "many"},
			Resource:      schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			FieldSelector: fmt.Sprint("metadata.name=one-", n),
		})
		require.NoError(t, err)
		require.Empty(t, l.at.informer().siblings.overlapping(l.at.informer()))
	}
}

func requireOverlapping(t *testing.T, i *informer, held []*Lease) {
	t.Helper()
	apart := func(a, b string) bool { return a != "" && b != "" && a != b }
	all, overlap := map[*informer]bool{}, map[*informer]bool{}
	for _, l := range held {
		other := l.at.informer()
		same := other != i && other.key.Cluster == i.key.Cluster && other.key.Resource == i.key.Resource
		if !same {
			continue
		}
		all[other] = true
		if !apart(other.key.Namespace, i.key.Namespace) && !apart(named(other.key), named(i.key)) {
			overlap[other] = true
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(all)), i.siblings.others(i))
	require.ElementsMatch(t, slices.Collect(maps.Keys(overlap)), i.siblings.overlapping(i))
}

// named returns the name in a field selector of the test.
func named(k Key) string {
	for _, name := range []string{"a", "b"} {
		if strings.HasPrefix(k.FieldSelector, "metadata.name="+name) {
			return name
		}
	}
	return ""
}

// TestInformersOfOneResourceFindOneHistory: within an epoch, a resource can go
// back alone, and each of its informers finds that for itself.
func TestInformersOfOneResourceFindOneHistory(t *testing.T) {
	pods, nodes := newSiblings(), newSiblings()
	requireNumber := func(of *siblings, epoch Epoch, another bool, over, number int, entered bool, why string) {
		t.Helper()
		is, first := of.number(epoch, another, over)
		require.Equal(t, number, is, why)
		require.Equal(t, entered, first, why)
	}
	requireNumber(pods, "a", false, 0, 0, false, "the first list")
	requireNumber(pods, "a", true, 0, 1, true, "the first one finds it")
	requireNumber(pods, "a", true, 0, 1, false, "the second one finds the same")
	requireNumber(pods, "a", true, 1, 2, true, "it goes back again")
	requireNumber(pods, "a", false, 0, 2, false, "a new informer lists the current one")

	requireNumber(nodes, "a", false, 0, 0, false, "resources go back one by one")
	require.True(t, pods.wentBack("a"))
	require.False(t, nodes.wentBack("a"))
	requireNumber(pods, "b", true, 2, 0, false, "an epoch begins anew")
	require.False(t, pods.wentBack("b"))
}
