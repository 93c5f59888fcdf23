// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// configMap returns an object with the given data.
func configMap(i int, data string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":"d",`+
			`"uid":"00000000-0000-4000-8000-%012d","resourceVersion":"%d"},"data":{"k":%q}}`, i, i, i+1, data)
}

var configMapGVK = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func noise(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + r.IntN(75))
	}
	return string(b)
}

func TestDictionaryThatDoesNotPayIsNotMade(t *testing.T) {
	c := NewCodec()
	k := c.Kind(configMapGVK)
	var keep []*Object
	for i := range (samples + 1) * stride {
		keep = append(keep, mustPack(t, c, k, configMap(i, noise(uint64(i), 1000))))
	}
	require.Equal(t, string(rune(codecJSON)), keep[0].body[:1], "what does not shrink stays as it is")
	require.Zero(t, k.dict.newest.Load().gen, "the first dictionary has codes that suit the objects")
	require.Nil(t, k.dict.all[1].Load(), "a second one finds no more in them")
	require.True(t, k.dict.done.Load())
}

func TestOneObjectThatChangesOftenMakesNoDictionary(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var keep []*Object
	for range 4 * samples {
		keep = append(keep, mustPack(t, c, k, pods(1)))
	}
	runtime.KeepAlive(keep)
	require.Nil(t, k.dict.newest.Load())
	require.LessOrEqual(t, len(k.dict.seen), 1)
}

func TestFewObjectsAreNotKeptAliveForADictionary(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	gone := make(chan struct{})
	for i := range samples - 1 {
		o := mustPack(t, c, k, pods(i))
		if i == 0 {
			runtime.AddCleanup(o, func(ch chan struct{}) { close(ch) }, gone)
		}
	}
	runtime.GC()
	runtime.GC()
	<-gone
	mustPack(t, c, k, pods(100))
	require.Nil(t, k.dict.newest.Load())
	require.Len(t, k.dict.seen, 1)
}

// TestSecondDictionaryLearnsWhatTheFirstCouldNot: the first objects of a list
// are neighbors. If later objects are of another sort, a second dictionary
// replaces the first, and both keep working.
func TestSecondDictionaryLearnsWhatTheFirstCouldNot(t *testing.T) {
	c := NewCodec()
	k := c.Kind(configMapGVK)
	object := func(i int) []byte {
		if i < 2*samples {
			return configMap(i, "first sort: "+noise(1, 900)+noise(uint64(i), 20))
		}
		return configMap(i, "second sort: "+noise(2, 2000)+noise(uint64(i), 20))
	}
	var keep []*Object
	for i := range stride * (samples + 2) {
		keep = append(keep, mustPack(t, c, k, object(i)))
	}
	require.EqualValues(t, 1, k.dict.newest.Load().gen)
	require.Equal(t, []byte{codecDense, 0}, []byte(keep[samples].body[:2]))
	last := keep[len(keep)-1]
	require.Equal(t, []byte{codecDense, 1}, []byte(last.body[:2]))
	require.Less(t, len(last.body), len(keep[3*samples].body)/2)
	for i := 0; i < len(keep); i += 5 {
		requireSameObject(t, object(i), keep[i])
	}
}

func TestDictionaryMemoryIsBounded(t *testing.T) {
	c := NewCodec()
	k := c.Kind(configMapGVK)
	var keep []*Object
	big := noise(3, 70_000)
	for i := range samples {
		keep = append(keep, mustPack(t, c, k, configMap(i, big+noise(uint64(i), 10))))
	}
	runtime.KeepAlive(keep)
	if d := k.dict.newest.Load(); d != nil {
		require.LessOrEqual(t, cap(d.content), dictMax+64)
	}
	for i, o := range keep {
		requireSameObject(t, configMap(i, big+noise(uint64(i), 10)), o)
	}
}
