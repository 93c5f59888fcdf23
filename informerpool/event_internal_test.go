// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

func packBy(t *testing.T, codec *packed.Codec, uid, version string) *Object {
	t.Helper()
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": version}}}
	u.SetGroupVersionKind(gvk)
	u.SetName("a")
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	o, err := codec.PackUnstructured(codec.Kind(gvk), u)
	require.NoError(t, err)
	return o
}

// TestHazardSlowHandlerIsToldOfOneStateTwice: changes that cancel out while a
// handler is slow are not delivered. A cluster that was replaced, and then
// replaced by the first one again, shows equal states in other objects.
func TestHazardSlowHandlerIsToldOfOneStateTwice(t *testing.T) {
	codec := packed.NewCodec()
	pack := func(uid, version string) *Object { return packBy(t, codec, uid, version) }
	told, other, again := pack("one", "1"), pack("two", "7"), pack("one", "1")
	at := &listener{}
	p := &pending{change: change{old: told, new: other}}
	p.merge(change{old: other, new: again})
	at.returnedLocked(p)
	events := p.events(Key{})
	require.Len(t, events, 1, "reads may have shown the other one")
	require.True(t, events[0].Resync && events[0].Requested)
	require.Equal(t, Updated, events[0].Type)
	require.Same(t, told, events[0].New)
	require.Same(t, told, at.alias[again], "what the next event says was told last")

	p.merge(change{old: again, new: pack("one", "2")})
	at.returnedLocked(p)
	events = p.events(Key{})
	require.Len(t, events, 1)
	require.False(t, events[0].Resync)
}

// TestHazardSlowHandlerIsToldOfAnUpdateWithoutAnAdd: an object that only a read
// had shown was taken for deleted, and exists after all.
func TestHazardSlowHandlerIsToldOfAnUpdateWithoutAnAdd(t *testing.T) {
	codec := packed.NewCodec()
	shown, same, another := packBy(t, codec, "one", "1"), packBy(t, codec, "one", "2"), packBy(t, codec, "two", "3")
	for name, row := range map[string]struct {
		comes *Object
		want  []EventType
	}{
		"the same": {comes: same, want: []EventType{Added}},
		"another":  {comes: another, want: []EventType{Deleted, Added}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pending{change: change{old: shown, final: shown, unknown: true}, unheard: true}
			p.merge(change{new: row.comes})
			var got []EventType
			for _, e := range p.events(Key{}) {
				got = append(got, e.Type)
			}
			require.Equal(t, row.want, got)

			p.merge(change{old: row.comes, final: row.comes})
			events := p.events(Key{})
			require.Len(t, events, 1, "whoever saw it hears that it is gone")
			require.Equal(t, Deleted, events[0].Type)
			require.Nil(t, events[0].Told)
		})
	}
}

// TestHazardObjectThatAReadShowedComesAndGoesUnheard: a handler that was busy
// all the time receives the delete of an object if a read may have shown the
// object, and nothing if no read can have.
func TestHazardObjectThatAReadShowedComesAndGoesUnheard(t *testing.T) {
	codec := packed.NewCodec()
	o, other := packBy(t, codec, "one", "1"), packBy(t, codec, "two", "2")
	in := &store.Sight{}
	in.Look()
	unseen := func() *pending { return &pending{change: change{new: o, sight: in.Next()}} }
	p := unseen()
	p.merge(change{old: o, final: o, sight: in.Next()})
	require.Empty(t, p.events(Key{}), "it came after the read")

	p = unseen()
	in.Look()
	p.merge(change{old: o, final: o, sight: in.Next()})
	events := p.events(Key{})
	require.Len(t, events, 1)
	require.Equal(t, Deleted, events[0].Type)
	require.Same(t, o, events[0].Old)

	p = unseen()
	p.shown = other // by a read that the API server answered
	p.merge(change{old: o, final: o, sight: in.Next()})
	events = p.events(Key{})
	require.Len(t, events, 1)
	require.Same(t, other, events[0].Old, "not one that was never shown")
	require.True(t, events[0].FinalStateUnknown)
}
