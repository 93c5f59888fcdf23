// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

var podGVK = corev1.SchemeGroupVersion.WithKind("Pod")

// madePods caches the test pods, since building them takes longer than packing
// them.
var madePods sync.Map

// pods returns a new copy of a test pod.
func pods(i int) []byte {
	pod, ok := madePods.Load(i)
	if !ok {
		pod, _ = madePods.LoadOrStore(i, wiretest.Pod(i))
	}
	return slices.Clone(pod.([]byte))
}

func mustPack(t testing.TB, c *Codec, k *Kind, object []byte) *Object {
	t.Helper()
	it, err := wire.Scan(object)
	require.NoError(t, err)
	o, err := c.Pack(k, it)
	require.NoError(t, err)
	return o
}

func packPod(t testing.TB) *Object {
	c := NewCodec()
	return mustPack(t, c, c.Kind(podGVK), pods(3))
}

func TestPackingKeepsNothingOfTheScannedBytes(t *testing.T) {
	c := NewCodec()
	raw := pods(3)
	o := mustPack(t, c, c.Kind(podGVK), raw)
	for i := range raw {
		raw[i] = 'x'
	}
	requireSameObject(t, pods(3), o)
}

func TestSettersPanicWithAdvice(t *testing.T) {
	o := packPod(t)
	v := reflect.ValueOf(o)
	setters := 0
	for i := range v.NumMethod() {
		if name := v.Type().Method(i).Name; strings.HasPrefix(name, "Set") {
			setters++
			arg := reflect.Zero(v.Method(i).Type().In(0))
			require.PanicsWithValue(t, readOnly, func() { v.Method(i).Call([]reflect.Value{arg}) }, name)
		}
	}
	require.Equal(t, 16, setters)
	require.PanicsWithValue(t, readOnly, func() { o.GetObjectKind().SetGroupVersionKind(podGVK) })
}

func TestWhatIsReadBelongsToTheCaller(t *testing.T) {
	o := packPod(t)
	u := o.DeepCopyObject().(*unstructured.Unstructured)
	u.SetLabels(map[string]string{"mine": "1"})
	unstructured.RemoveNestedField(u.Object, "spec")
	o.GetLabels()["mine"] = "1"
	o.GetAnnotations()["mine"] = "1"
	o.GetOwnerReferences()[0].Name = "mine"
	var pod corev1.Pod
	require.NoError(t, o.Into(&pod))
	pod.Spec.Containers[0].Env[0].Value = "mine"
	pod.Labels["mine"] = "1"
	requireSameObject(t, pods(3), o)
}

func TestIntoResetsItsTarget(t *testing.T) {
	o := packPod(t)
	pod := corev1.Pod{Spec: corev1.PodSpec{Hostname: "left over"}, Status: corev1.PodStatus{Message: "left over"}}
	pod.Labels = map[string]string{"left": "over"}
	require.NoError(t, o.Into(&pod))
	requireSameTyped(t, pods(3), o, &corev1.Pod{})
	require.Empty(t, pod.Spec.Hostname+pod.Status.Message)
	require.NotContains(t, pod.Labels, "left")
	u := unstructured.Unstructured{Object: map[string]any{"left": "over"}}
	require.NoError(t, o.Into(&u))
	require.NotContains(t, u.Object, "left")
}

func TestIntoRefusesWhatIsNoTarget(t *testing.T) {
	o := packPod(t)
	for _, dst := range []kruntime.Object{nil, (*corev1.Pod)(nil), o, &Object{}} {
		err := o.Into(dst)
		require.ErrorIs(t, err, ErrTarget)
		var d *DecodeError
		require.ErrorAs(t, err, &d)
		require.Equal(t, podGVK, d.GVK)
	}
	requireSameObject(t, pods(3), o)
}

// TestDecodeErrorsHoldNoValues: the error of a Secret that does not fit its Go
// type must not contain its values.
func TestDecodeErrorsHoldNoValues(t *testing.T) {
	const canary = "hunter2"
	c := NewCodec()
	k := c.Kind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for _, member := range []string{
		`"data":{"password":"` + canary + `!"}`, `"data":"` + canary + `"`, `"immutable":"` + canary + `"`,
		`"type":4711`, `"stringData":{"a":1234567}`,
		`"metadata2":1,"data":{"a":{"` + canary + `":1}}`,
	} {
		o := mustPack(t, c, k, []byte(`{"metadata":{"name":"s","namespace":"ns"},`+member+`}`))
		secret := &corev1.Secret{}
		err := o.Into(secret)
		require.ErrorIs(t, err, ErrMismatch, member)
		for _, value := range []string{canary, "4711", "1234567"} {
			require.NotContains(t, err.Error(), value)
		}
		require.Contains(t, err.Error(), "ns/s")
		require.Equal(t, &corev1.Secret{}, secret)
		require.NoError(t, o.Into(&metav1.PartialObjectMetadata{}))
	}
	odd := mustPack(t, c, k, []byte(`{"metadata":{"name":"\u001b[31m`+strings.Repeat("x", 1000)+`"},"data":1}`))
	err := odd.Into(&corev1.Secret{})
	require.NotContains(t, err.Error(), "\x1b")
	require.Less(t, len(err.Error()), 300)
	for _, member := range []string{`"spec":{"activeDeadlineSeconds":1234567890123456789012}`,
		`"status":{"startTime":"` + canary + `"}`} {
		o := mustPack(t, c, c.Kind(podGVK), []byte(`{"metadata":{"name":"s"},`+member+`}`))
		err := o.Into(&corev1.Pod{})
		require.ErrorIs(t, err, ErrMismatch)
		require.NotContains(t, err.Error(), canary)
		require.NotContains(t, err.Error(), "12345678901234")
	}
}

func TestPackRefusesAnotherKind(t *testing.T) {
	c := NewCodec()
	for raw, field := range map[string]string{
		`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n"}}`: "kind",
		`{"kind":"Pod","apiVersion":"v2","metadata":{"name":"n"}}`:    "apiVersion",
		`{"kind":"Pod","apiVersion":"v1"}`:                            "metadata",
		`{"metadata":null}`:                                           "metadata",
	} {
		it, err := wire.Scan([]byte(raw))
		require.NoError(t, err)
		_, err = c.Pack(c.Kind(podGVK), it)
		var refused *wire.FieldError
		require.ErrorAs(t, err, &refused, raw)
		require.Equal(t, field, refused.Field)
	}
}

func TestPackUnstructuredRefusesWhatIsNoJSON(t *testing.T) {
	c := NewCodec()
	for _, content := range []map[string]any{nil, {"a": make(chan int)}, {"metadata": "x"},
		{"metadata": map[string]any{"name": int64(1)}}} {
		_, err := c.PackUnstructured(c.Kind(podGVK), &unstructured.Unstructured{Object: content})
		require.Error(t, err)
	}
}

func TestPackUnstructuredEqualsPackingItsJSON(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	for i := range 2 * samples {
		var u unstructured.Unstructured
		require.NoError(t, u.UnmarshalJSON(pods(i)))
		spelled, err := u.MarshalJSON()
		require.NoError(t, err)
		a := mustPack(t, c, k, spelled)
		b, err := c.PackUnstructured(k, &u)
		require.NoError(t, err)
		require.True(t, a.SameContent(b))
		require.Equal(t, string(a.AppendJSON(nil)), string(b.AppendJSON(nil)))
		require.Equal(t, a.GetResourceVersion(), b.GetResourceVersion())
	}
}

func TestSameContentIgnoresOnlyTheResourceVersion(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	base := `{"metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"1","labels":{"a":"b"},` +
		`"annotations":{"c":"d"}},"spec":{"x":1}}`
	o := mustPack(t, c, k, []byte(base))
	require.True(t, o.SameContent(o))
	require.True(t, o.SameContent(mustPack(t, c, k, []byte(base))))
	require.False(t, o.SameContent(nil))
	for change, same := range map[[2]string]bool{
		{`"resourceVersion":"1"`, `"resourceVersion":"2"`}:         true,
		{`"resourceVersion":"1"`, `"resourceVersion":"x"`}:         true,
		{`"name":"n"`, `"name":"m"`}:                               false,
		{`"namespace":"ns"`, `"namespace":"other"`}:                false,
		{`"uid":"u"`, `"uid":"v"`}:                                 false,
		{`"a":"b"`, `"a":"c"`}:                                     false,
		{`"c":"d"`, `"c":"e"`}:                                     false,
		{`"x":1`, `"x":2`}:                                         false,
		{`"uid":"u"`, `"uid":"u","generation":1`}:                  false,
		{`"uid":"u"`, `"uid":"u","finalizers":["f"]`}:              false,
		{`"uid":"u"`, `"uid":"u","ownerReferences":[]`}:            false,
		{`"x":1}`, `"x":1},"status":{}`}:                           false,
		{`"uid":"u"`, `"uid":"u","managedFields":[{"manager":1}]`}: false,
	} {
		p := mustPack(t, c, k, []byte(strings.Replace(base, change[0], change[1], 1)))
		require.Equal(t, same, o.SameContent(p), change)
		require.Equal(t, same, p.SameContent(o), change)
	}
}

// TestHeaderIsReadWithoutTheBody: handlers and predicates read names, versions
// and times of many objects.
func TestHeaderIsReadWithoutTheBody(t *testing.T) {
	o := packPod(t)
	want := &unstructured.Unstructured{}
	require.NoError(t, want.UnmarshalJSON(pods(3)))
	o.body = "" // opening it fails
	require.Equal(t, want.GetName(), o.GetName())
	require.Equal(t, want.GetName(), NameOf(o))
	require.Equal(t, want.GetNamespace(), o.GetNamespace())
	require.Equal(t, want.GetUID(), o.GetUID())
	require.Equal(t, want.GetResourceVersion(), o.GetResourceVersion())
	require.Equal(t, want.GetGeneration(), o.GetGeneration())
	require.Equal(t, want.GetCreationTimestamp(), o.GetCreationTimestamp())
	require.Equal(t, want.GetDeletionTimestamp(), o.GetDeletionTimestamp())
	require.Equal(t, podGVK, o.GetObjectKind().GroupVersionKind())
	require.True(t, o.MayHave(Required(labels.SelectorFromSet(want.GetLabels()))))
	require.ErrorIs(t, o.Into(&corev1.Pod{}), ErrCorrupt)
	require.Panics(t, func() { o.DeepCopyObject() })
}

// TestSizeIsWhatTheHeapHolds compares sizes with the heap, for objects of very
// different shapes.
func TestSizeIsWhatTheHeapHolds(t *testing.T) {
	for name, object := range map[string]func(i int) []byte{
		"Pods":  pods,
		"small": func(i int) []byte { return configMap(i, noise(uint64(i), 20)) },
		"large": func(i int) []byte { return configMap(i, noise(uint64(i), 40_000)) },
		"long names": func(i int) []byte {
			return fmt.Appendf(nil, `{"metadata":{"name":"%0*d"}}`, i%(nameMax+50), i)
		},
		"unusual": func(i int) []byte {
			return fmt.Appendf(nil, `{"metadata":{"name":"n%d","uid":"no UUID %d","resourceVersion":"v%d"}}`, i, i, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCodec()
			k := &Kind{gvk: configMapGVK, apiVersion: "v1"}
			if name == "Pods" {
				k = c.Kind(podGVK)
			}
			c = c.withKind(k)
			for i := range stride * samples {
				mustPack(t, c, k, object(i)) // the dictionaries, and memory that the process keeps
			}
			n := 10_000 // what the process allocates beside them must not matter
			switch name {
			case "Pods":
				n = 500
			case "large":
				n = 100
			}
			objects, size := make([]*Object, n), 0
			raw := make([][]byte, n)
			for i := range raw {
				raw[i] = object(i)
			}
			before := liveHeap()
			for i := range objects {
				objects[i] = mustPack(t, c, k, raw[i])
				size += objects[i].Size()
			}
			held := int(liveHeap() - before)
			runtime.KeepAlive(objects)
			runtime.KeepAlive(raw)
			require.InEpsilon(t, held, size, 0.1) // with the race detector 0.08
		})
	}
}

// TestPodsCostLittle checks the promise for which this package exists, for Pods
// of 8.9 KB that are replicas, and for Pods that are not.
func TestPodsCostLittle(t *testing.T) {
	const n = 1000
	for step, promised := range map[int]int64{1: 620, 5: 620} { // with a dictionary
		objects, raw := make([]*Object, n), make([][]byte, n)
		for i := range raw {
			raw[i] = pods(i * step)
		}
		before := liveHeap()
		c := NewCodec()
		k := c.Kind(podGVK)
		for i := range objects {
			objects[i] = mustPack(t, c, k, raw[i])
		}
		perPod := int64(liveHeap()-before) / n
		t.Logf("%d B a Pod, one in %d", perPod, step)
		require.Less(t, perPod, promised)
		require.NotNil(t, k.dict.newest.Load())
		require.Len(t, objects, n)
		runtime.KeepAlive(raw)
	}
}

func TestDamagedBodyIsReportedNotGuessed(t *testing.T) {
	for _, body := range []string{"", "?", "j", "?\x00{}", "j\x80", "s\x05\xff", "j\x7f{}", "d", "d\x00", "d\x00\x00x",
		"d\x07\x00x", "s\x00\xff\xff\xff"} {
		o := packPod(t)
		o.body = body
		require.ErrorIs(t, o.Into(&unstructured.Unstructured{}), ErrCorrupt, "%q", body)
		require.Empty(t, o.AppendJSON(nil))
		require.Nil(t, o.GetAnnotations())
		require.False(t, o.SameContent(packPod(t)))
		require.False(t, packPod(t).SameContent(o))
	}
}

// TestHugeObjectsComeBack: scratch memory for one huge object is not kept for
// small ones.
func TestHugeObjectsComeBack(t *testing.T) {
	c := NewCodec()
	k := c.Kind(configMapGVK)
	for _, n := range []int{maxBlock - 200, maxBlock, maxBlock + 1, 2 * scratchMax} {
		for _, data := range []string{strings.Repeat("y", n), noise(9, n)} {
			raw := configMap(n, data)
			requireSameObject(t, raw, mustPack(t, c, k, raw))
		}
	}
}
