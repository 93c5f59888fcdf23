// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// requireApplyKeepsTheRest follows client-go's pattern for a change: a cached
// Get, ExtractConfigMap, and Apply of the extract with one more field.
func requireApplyKeepsTheRest(t *testing.T, server *testenv.Cluster) {
	for name, tc := range map[string]struct {
		drop   bool
		cached bool // the Get
		opts   []client.GetOption
	}{
		"by default": {cached: true},
		"for apply":  {cached: true, opts: []client.GetOption{clustercache.ForApply}},
		"dropped":    {drop: true, opts: []client.GetOption{clustercache.ForApply}},
	} {
		t.Run(name, func(t *testing.T) {
			d := fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), server.Config())
			o := fleettest.Quick(d)
			o.Informers.DropManagedFields = tc.drop
			cc := fleettest.Start(t, o)
			w := fleettest.Watch(t, cc, client.InNamespace("default"))
			require.NoError(t, w.WaitForSync(t.Context()))
			objects := fleettest.FollowObjects(t, cc, events.Selection{})
			c, err := cc.Cluster(fleettest.Key("a")).Client()
			require.NoError(t, err)
			at := client.ObjectKey{Namespace: "default", Name: "applied"}
			first := applycorev1.ConfigMap(at.Name, at.Namespace).WithData(map[string]string{"kept": "1"})
			require.NoError(t, c.Apply(t.Context(), first, client.FieldOwner("me")))
			objects.WaitAll(at.Name)

			got, origin := &corev1.ConfigMap{}, clustercache.Origin{}
			require.NoError(t, c.Get(t.Context(), at, got, append(tc.opts, &origin)...))
			require.Equal(t, tc.cached, origin.Cached)
			extracted, err := applycorev1.ExtractConfigMap(got, "me")
			require.NoError(t, err)
			extracted.WithLabels(map[string]string{"added": "1"})
			require.NoError(t, c.Apply(t.Context(), extracted, client.FieldOwner("me")))

			require.NoError(t, server.Client().Get(t.Context(), at, got))
			require.Equal(t, map[string]string{"kept": "1"}, got.Data)
			require.Equal(t, map[string]string{"added": "1"}, got.Labels)
			require.NoError(t, server.Client().Delete(t.Context(), got))
		})
	}
}
