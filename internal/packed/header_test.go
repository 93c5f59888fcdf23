// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestNamesOfEveryLengthComeBack: names lie behind the header, in its
// allocation, or apart from it if they are too long.
func TestNamesOfEveryLengthComeBack(t *testing.T) {
	c := NewCodec()
	k := c.Kind(configMapGVK)
	for n := range 2*nameMax + 2 {
		name := noise(uint64(n), n)
		raw := fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"ns","uid":"u"}}`, name)
		o := mustPack(t, c, k, raw)
		require.Equal(t, name, o.GetName())
		require.Equal(t, name, NameOf(o))
		requireSameObject(t, raw, o)
		other := bytes.Replace(raw, []byte(`"name":"`), []byte(`"name":"x`), 1)
		require.False(t, o.SameContent(mustPack(t, c, k, other)))
	}
	require.Empty(t, NameOf(&Object{}))
	require.Empty(t, new(Object).GetName())
}

// TestNamesKeepNoObjectAlive: users keep names, as keys of maps or in queues,
// for longer than the object's state.
func TestNamesKeepNoObjectAlive(t *testing.T) {
	o := packPod(t)
	var m metav1.PartialObjectMetadata
	require.NoError(t, o.Into(&m))
	names := []string{o.GetName(), m.Name, o.DeepCopyObject().(*unstructured.Unstructured).GetName()}
	gone := make(chan struct{})
	runtime.AddCleanup(o, func(ch chan struct{}) { close(ch) }, gone)
	o = nil
	runtime.GC()
	runtime.GC()
	<-gone
	require.Equal(t, names[0], names[1])
	require.Equal(t, names[0], names[2])
}
