// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
)

var kinds = append([]objects.Kind{
	objects.Widgets, objects.TLSSecrets, objects.Custom(0), objects.Custom(1),
}, objects.Mix...)

func TestObjectsAreRepeatableAndNoneRepeatsAnother(t *testing.T) {
	texts, uids := map[string]bool{}, map[string]bool{}
	const n = 300
	clusters := []objects.Generator{{Seed: 1}, {Seed: 2}, {Seed: 3, Replicas: 1}}
	for _, g := range clusters {
		for _, k := range kinds {
			names := map[string]bool{}
			for i := range n {
				o := k.New(g, i)
				require.Equal(t, o, k.New(g, i))
				require.Equal(t, k.GVK, o.GetObjectKind().GroupVersionKind())
				require.True(t, objects.IsName(o.GetName()), o.GetName())
				names[o.GetNamespace()+"/"+o.GetName()] = true
				text, err := json.Marshal(o)
				require.NoError(t, err)
				texts[string(text)] = true
				uids[k.GVK.Kind+k.Resource+string(g.Stored(k, i, 0).GetUID())] = true
			}
			require.Len(t, names, n)
		}
	}
	require.Len(t, texts, n*len(kinds)*len(clusters))
	require.Len(t, uids, n*(len(kinds)-1)*len(clusters), "Secrets of both types would have the same UIDs")
}

func TestCustomKindsOfOneShapeShareNoContent(t *testing.T) {
	one, other := objects.Custom(1), objects.Custom(5)
	first, second := one.New(objects.Generator{}, 7), other.New(objects.Generator{}, 7)
	require.IsType(t, first, second)
	second.GetObjectKind().SetGroupVersionKind(one.GVK)
	require.Equal(t, first.GetName(), second.GetName())
	require.NotEqual(t, first, second)
}

func TestReplicasShareLabelsAndOwner(t *testing.T) {
	for replicas, want := range map[int]int{1: 40, 5: 8, 0: 40 / objects.DefaultReplicas} {
		labels, owners := map[string]bool{}, map[string]bool{}
		for i := range 40 {
			p := objects.Generator{Replicas: replicas}.Pod(i)
			labels[p.Labels["pod-template-hash"]] = true
			owners[string(metav1.GetControllerOf(p).UID)] = true
		}
		require.Len(t, labels, want)
		require.Len(t, owners, want)
	}
}

func TestARevisionChangesAnObject(t *testing.T) {
	for _, k := range kinds {
		first, second := objects.Generator{}.Stored(k, 1, 0), objects.Generator{}.Stored(k, 1, 1)
		require.NotEqual(t, first, second)
		second.SetAnnotations(first.GetAnnotations())
		require.Equal(t, first, second)
	}
}

func TestManagedFieldsAreThoseOfTheObject(t *testing.T) {
	for _, k := range objects.Mix {
		m := objects.NewManaged(k)
		g := objects.Generator{Seed: 7}
		require.NoError(t, m.Add(g, k.New(g, 0)))
		o := g.Stored(k, 9, 0)
		require.NoError(t, m.Add(g, o))

		alone := objects.NewManaged(k) // learns from another cluster
		other := objects.Generator{Seed: 8}
		require.NoError(t, alone.Add(other, k.New(other, 3)))
		again := g.Stored(k, 9, 0)
		require.NoError(t, alone.Add(g, again))
		require.Equal(t, o.GetManagedFields(), again.GetManagedFields(), "the template leaves no trace")
		for _, entry := range o.GetManagedFields() {
			require.True(t, json.Valid(entry.FieldsV1.GetRawBytes()))
		}
	}
}
