// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardKindsOfAnotherCluster: a proxy that keeps its connections now leads
// to another cluster, which does not reveal its identity. The kinds it serves
// are not taken for those of the former cluster, by whichever call discovery is
// queried.
func TestHazardKindsOfAnotherCluster(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, a, b := fleettest.BehindProxy(t, secure)
				mapper, err := cc.Cluster(fleettest.Key("a")).RESTMapper()
				require.NoError(t, err)
				_, err = mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
				require.NoError(t, err)
				epoch := fleettest.Status(t, cc).Epoch
				b.FailWith(-1, "/namespaces")
				proxy.Move(b)
				time.Sleep(61 * time.Second)
				asked := func() int { return b.Count("get /api") + b.Count("get /apis") + b.Count("get /api/v1") }
				before := asked()
				for range 40 {
					_, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
					require.Error(t, err)
					_, err = mapper.ResourceFor(schema.GroupVersionResource{Resource: "widgets"})
					require.Error(t, err)
					require.Error(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
						client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.Pod{}))
					require.Error(t, write(t, cc))
					_, err = cc.Cluster(fleettest.Key("a")).Watch(t.Context(),
						&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
					require.NoError(t, err)
					time.Sleep(time.Minute)
				}
				require.Equal(t, before, asked())
				require.Equal(t, epoch, fleettest.Status(t, cc).Epoch)
				require.Equal(t, status.PhaseDegraded, fleettest.Status(t, cc).Phase)
				require.Equal(t, "Timeout", fleettest.Status(t, cc).Reason)

				proxy.Move(a)
				time.Sleep(time.Minute)
				require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
				_, err = mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
				require.True(t, meta.IsNoMatchError(err), "%v", err)
				require.Equal(t, before, asked())
			})
		})
	}
}
