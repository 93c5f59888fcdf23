// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// TestCodecServesAFleetAtOnce packs and reads on many goroutines while the
// dictionaries are being made.
func TestCodecServesAFleetAtOnce(t *testing.T) {
	c := NewCodec()
	const workers, objects = 4, 2*stride + samples
	packed := make([][]*Object, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range objects {
				k := c.Kind(podGVK)
				it, err := wire.Scan(pods(i))
				if err != nil {
					panic(err)
				}
				o, err := c.Pack(k, it)
				if err != nil {
					panic(err)
				}
				packed[w] = append(packed[w], o)
				var pod corev1.Pod
				other := packed[w][i/2]
				if err := other.Into(&pod); err != nil || pod.Name != other.GetName() || len(pod.Spec.Containers) != 2 {
					panic("another object came back")
				}
				if other.GetAnnotations()["prometheus.io/port"] != "8080" {
					panic("another object's annotations came back")
				}
			}
		})
	}
	wg.Wait()
	require.NotNil(t, c.Kind(podGVK).dict.newest.Load())
	for w := range workers {
		for i, o := range packed[w] {
			require.True(t, o.SameContent(packed[0][i]))
			if w == 0 && i%32 == 0 {
				requireSameObject(t, pods(i), o)
			}
		}
	}
	runtime.KeepAlive(packed)
}

func TestKindIsTheSameForEveryCaller(t *testing.T) {
	c := NewCodec()
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	got := make([]*Kind, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = c.Kind(gvk) })
	}
	wg.Wait()
	for _, k := range got {
		require.Same(t, got[0], k)
	}
	require.Equal(t, gvk, got[0].GVK())
	require.NotSame(t, got[0], c.Kind(podGVK))
}
