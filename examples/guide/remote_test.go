// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/examples/guide"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestObjectIsKeptAndItsEventRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const finalizer = "example.com/keep"
		fleet, east := start(t, configMap())
		cc := fleet.ClusterCache()
		obj := &corev1.ConfigMap{}
		read := func() { require.NoError(t, east.Client().Get(t.Context(), settings, obj)) }
		read()
		require.NoError(t, guide.Keep(t.Context(), cc, east.Key(), obj, finalizer))
		require.NoError(t, east.Client().Delete(t.Context(), obj))
		read()
		require.Equal(t, []string{finalizer}, obj.Finalizers)

		recorder, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "example.com/guide"})
		require.NoError(t, err)
		guide.Deployed(recorder, east.Key(), obj, "2")
		stop := fleettest.Run(t, recorder)
		synctest.Wait()
		stop()
		events := &eventsv1.EventList{}
		require.NoError(t, east.Client().List(t.Context(), events))
		require.Len(t, events.Items, 1)
		require.Equal(t, "version 2", events.Items[0].Note)

		require.NoError(t, guide.Keep(t.Context(), cc, east.Key(), obj, finalizer))
		require.Error(t, east.Client().Get(t.Context(), settings, obj))
	})
}
