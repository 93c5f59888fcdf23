// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

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

	"github.com/fleetcache/fleetcache/clustercache"
)

// TestHazardKindsOfAnotherCluster: a proxy that keeps its connections now leads
// to another cluster, which does not reveal its identity. The kinds it serves
// are not taken for those of the former cluster, by whichever call discovery is
// queried.
func TestHazardKindsOfAnotherCluster(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, a, b := behindProxy(t, secure)
				mapper, err := cc.RESTMapper(key("a"))
				require.NoError(t, err)
				_, err = mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
				require.NoError(t, err)
				epoch := status(t, cc).Epoch
				b.failWith(-1, "/namespaces")
				proxy.move(b)
				time.Sleep(61 * time.Second)
				asked := func() int { return b.count("get /api") + b.count("get /apis") + b.count("get /api/v1") }
				before := asked()
				for range 40 {
					_, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
					require.Error(t, err)
					_, err = mapper.ResourceFor(schema.GroupVersionResource{Resource: "widgets"})
					require.Error(t, err)
					require.Error(t, cc.Reader(key("a")).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.Pod{}))
					require.Error(t, write(t, cc))
					_, err = cc.Watch(t.Context(), key("a"), &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
					require.NoError(t, err)
					time.Sleep(time.Minute)
				}
				require.Equal(t, before, asked())
				require.Equal(t, epoch, status(t, cc).Epoch)
				require.Equal(t, clustercache.PhaseDegraded, status(t, cc).Phase)
				require.Equal(t, "Timeout", status(t, cc).Reason)

				proxy.move(a)
				time.Sleep(time.Minute)
				require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
				_, err = mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
				require.True(t, meta.IsNoMatchError(err), "%v", err)
				require.Equal(t, before, asked())
			})
		})
	}
}
