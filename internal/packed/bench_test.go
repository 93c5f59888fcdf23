// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

const benchPods = 4000

// trained returns a codec that has packed enough pods for its dictionaries.
func trained(b testing.TB) (*Codec, *Kind) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var keep []*Object
	for i := range 2 * samples {
		keep = append(keep, mustPack(b, c, k, wiretest.Pod(1000+i)))
	}
	runtime.KeepAlive(keep)
	return c, k
}

func BenchmarkScanAndPack(b *testing.B) {
	c, k := trained(b)
	pods := make([][]byte, 64)
	for i := range pods {
		pods[i] = wiretest.Pod(i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		it, err := wire.Scan(pods[i%len(pods)])
		if err != nil {
			b.Fatal(err)
		}
		if _, err = c.Pack(k, it); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkEncode compares the encodings of a body: what they take, and how
// long they do.
func BenchmarkEncode(b *testing.B) {
	codec, kind := trained(b)
	dict := kind.dict.newest.Load()
	bodies := make([][]byte, 256)
	for i := range bodies {
		of, err := mustPack(b, codec, kind, wiretest.Pod(5000+i)).open(toEnd)
		require.NoError(b, err)
		bodies[i] = bytes.Clone(of.s.plain)
		of.close()
	}

	room, plain := make([]byte, maxBlock), make([]byte, maxBlock)
	ofS2 := s2.MakeDict(dict.content, dict.content[len(dict.content)-dict.start:])
	for name, c := range map[string]struct {
		encode func(body []byte) []byte
		decode func(body, block []byte) bool
	}{
		"dense": {
			func(body []byte) []byte { return dict.encode(room[:0], body) },
			func(body, block []byte) bool { return dict.decode(plain[:len(body)], block, len(body)) },
		},
		"s2": {
			func(body []byte) []byte { return ofS2.EncodeBetter(room, body) },
			func(_, block []byte) bool {
				_, err := ofS2.Decode(plain, block)
				return err == nil
			},
		},
	} {
		b.Run(name, func(b *testing.B) {
			size := 0
			for i := 0; b.Loop(); i++ {
				size += len(c.encode(bodies[i%len(bodies)]))
			}
			b.ReportMetric(float64(size)/float64(b.N), "B/body")
		})
		b.Run("decode "+name, func(b *testing.B) {
			blocks := make([][]byte, len(bodies))
			for i, body := range bodies {
				blocks[i] = bytes.Clone(c.encode(body))
			}
			for i := 0; b.Loop(); i++ {
				if !c.decode(bodies[i%len(bodies)], blocks[i%len(bodies)]) {
					b.Fatal("cannot be decoded")
				}
			}
		})
	}
}

// BenchmarkHeapPerPod reports the total heap cost of a packed pod.
func BenchmarkHeapPerPod(b *testing.B) {
	var perPod, perSize float64
	for b.Loop() {
		c := NewCodec()
		k := c.Kind(podGVK)
		objects := make([]*Object, benchPods)
		before := liveHeap()
		size := 0
		for i := range objects {
			objects[i] = mustPack(b, c, k, wiretest.Pod(i))
			size += objects[i].Size()
		}
		perPod = float64(liveHeap()-before) / benchPods
		perSize = float64(size) / benchPods
		runtime.KeepAlive(objects)
		runtime.KeepAlive(c)
	}
	b.ReportMetric(perPod, "B/object")
	b.ReportMetric(perSize, "B/object-by-Size")
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkRead(b *testing.B) {
	c, k := trained(b)
	raw := wiretest.Pod(3)
	o := mustPack(b, c, k, raw)
	var full unstructured.Unstructured
	require.NoError(b, full.UnmarshalJSON(raw))
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	run("DeepCopyOfUnstructuredWithManagedFields", func() { full.DeepCopyObject() })
	run("Unstructured", func() { must(o.Into(new(unstructured.Unstructured))) })
	run("Typed", func() { must(o.Into(new(corev1.Pod))) })
	var typed corev1.Pod
	must(o.Into(&typed))
	run("DeepCopyOfTyped", func() { typed.DeepCopyObject() })
	run("PartialObjectMetadata", func() { must(o.Into(new(metav1.PartialObjectMetadata))) })
	run("JSON", func() { o.AppendJSON(nil) })
	run("Labels", func() { o.GetLabels() })
	run("Annotations", func() { o.GetAnnotations() })
	run("OwnerReferences", func() { o.GetOwnerReferences() })
	run("OwnerUIDs", func() {
		for range o.OwnerUIDs() {
		}
	})
	run("NameNamespaceUID", func() { _, _, _ = o.GetName(), o.GetNamespace(), o.GetUID() })
	sel, err := labels.Parse("app.kubernetes.io/name=x,pod-template-hash in (a,b)")
	must(err)
	run("MatchesLabels", func() { o.MatchesLabels(sel) })
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
