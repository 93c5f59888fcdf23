// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

func packBy(t *testing.T, codec *packed.Codec, uid, version string) *packed.Object {
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
	pack := func(uid, version string) *packed.Object { return packBy(t, codec, uid, version) }
	told, other, again := pack("one", "1"), pack("two", "7"), pack("one", "1")
	p := New(Change{Old: told, New: other})
	p.Merge(Change{Old: other, New: again}, false)
	require.Same(t, again, p.Undo(), "what the next event says was told last stands in for it")
	steps := p.Steps()
	require.Len(t, steps, 1, "reads may have shown the other one")
	require.True(t, steps[0].Resync && steps[0].Requested)
	require.Same(t, told, steps[0].Old)
	require.Same(t, told, steps[0].New)

	p.Merge(Change{Old: again, New: pack("one", "2")}, false)
	require.Nil(t, p.Undo())
	steps = p.Steps()
	require.Len(t, steps, 1)
	require.False(t, steps[0].Resync)
}

// TestHazardSlowHandlerIsToldOfAnUpdateWithoutAnAdd: an object that only a read
// had shown was taken for deleted, and exists after all.
func TestHazardSlowHandlerIsToldOfAnUpdateWithoutAnAdd(t *testing.T) {
	codec := packed.NewCodec()
	shown, same, another := packBy(t, codec, "one", "1"), packBy(t, codec, "one", "2"), packBy(t, codec, "two", "3")
	for name, row := range map[string]struct {
		comes *packed.Object
		want  []Step
	}{
		"the same": {comes: same, want: []Step{{New: same}}},
		"another":  {comes: another, want: []Step{{Old: shown, FinalStateUnknown: true}, {New: another}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Lost(shown, false)
			p.Merge(Change{New: row.comes}, false)
			require.Equal(t, row.want, p.Steps())

			p.Merge(Change{Old: row.comes, Final: row.comes}, false)
			steps := p.Steps()
			require.Len(t, steps, 1, "a handler that saw it receives its delete")
			require.Nil(t, steps[0].New)
			require.Nil(t, steps[0].LastDelivered)
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
	unseen := func() *Pending { return New(Change{New: o, Sight: in.Next()}) }
	p := unseen()
	p.Merge(Change{Old: o, Final: o, Sight: in.Next()}, false)
	require.Empty(t, p.Steps(), "it came after the read")
	require.True(t, p.IsVoid())

	p = unseen()
	in.Look()
	p.Merge(Change{Old: o, Final: o, Sight: in.Next()}, false)
	require.Equal(t, []Step{{Old: o}}, p.Steps())

	p = unseen()
	p.Show(other) // by a read that the API server answered
	p.Merge(Change{Old: o, Final: o, Sight: in.Next()}, false)
	steps := p.Steps()
	require.Len(t, steps, 1)
	require.Same(t, other, steps[0].Old, "not one that was never shown")
	require.True(t, steps[0].FinalStateUnknown)
}

// TestObjectsThatCameAndWentAreKeptForAHandlerThatAsks: their deletes follow
// the delete of the object that the handler knows.
func TestObjectsThatCameAndWentAreKeptForAHandlerThatAsks(t *testing.T) {
	codec := packed.NewCodec()
	known, now := packBy(t, codec, "one", "1"), packBy(t, codec, "three", "4")
	brief, ended := packBy(t, codec, "two", "2"), packBy(t, codec, "two", "3")
	p := New(Change{Old: known, New: brief})
	require.True(t, p.Merge(Change{Old: brief, Final: ended}, true))
	require.Equal(t, 1, p.Brief())
	require.False(t, p.IsVoid())
	require.False(t, p.Merge(Change{New: now}, true), "no object ends")
	require.Equal(t, []Step{
		{Old: known, FinalStateUnknown: true}, {Old: ended, FinalStateUnknown: true}, {New: now},
	}, p.Steps())

	p = New(Change{Old: known, New: brief})
	require.False(t, p.Merge(Change{Old: brief, Final: ended}, false), "the handler does not ask")
	require.Len(t, p.Steps(), 1)
	p = New(Change{New: brief})
	require.False(t, p.Merge(Evicted(brief), true), "an eviction proves nothing about the object")
	require.Empty(t, p.Steps())
}

// TestDeleteCarriesTheLastStateAndTheLastDeliveredOne: an object that changed
// before it was deleted.
func TestDeleteCarriesTheLastStateAndTheLastDeliveredOne(t *testing.T) {
	codec := packed.NewCodec()
	first, second := packBy(t, codec, "one", "1"), packBy(t, codec, "one", "2")
	p := New(Change{Old: first, New: second})
	p.Merge(Change{Old: second, Final: second}, false)
	require.Equal(t, []Step{{Old: second, LastDelivered: first}}, p.Steps())
}

// TestLoseLeavesANewerChange: what is about to be delivered is not replaced by
// the delete of an object that only a read has shown.
func TestLoseLeavesANewerChange(t *testing.T) {
	codec := packed.NewCodec()
	old, o, other := packBy(t, codec, "one", "1"), packBy(t, codec, "one", "2"), packBy(t, codec, "two", "3")
	for name, row := range map[string]struct {
		pending Change
		want    []Step
	}{
		"an update":             {Change{Old: old, New: o}, []Step{{Old: old, New: o}}},
		"an add":                {Change{New: o}, []Step{{New: o}}},
		"the add of another":    {Change{New: other}, []Step{{Old: o, FinalStateUnknown: true}, {New: other}}},
		"the delete of another": {Change{Old: other, Final: other}, []Step{{Old: other}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(row.pending)
			p.Lose(o, false)
			require.Equal(t, row.want, p.Steps())
		})
	}
}

// TestNarrowShowsWhatAHandlerSelects: an object that begins to match is added,
// and one that stops matching is deleted with its newest state.
func TestNarrowShowsWhatAHandlerSelects(t *testing.T) {
	codec := packed.NewCodec()
	a, b := packBy(t, codec, "one", "1"), packBy(t, codec, "one", "2")
	for name, row := range map[string]struct {
		matches []*packed.Object
		want    Change
		shown   bool
	}{
		"both":   {matches: []*packed.Object{a, b}, want: Change{Old: a, New: b}, shown: true},
		"begins": {matches: []*packed.Object{b}, want: Change{New: b}, shown: true},
		"stops":  {matches: []*packed.Object{a}, want: Change{Old: a, Final: b}, shown: true},
		"none":   {want: Change{Old: a, New: b}},
	} {
		t.Run(name, func(t *testing.T) {
			matches := func(o *packed.Object) bool { return slices.Contains(row.matches, o) }
			got, shown := Change{Old: a, New: b}.Narrow(matches)
			require.Equal(t, row.want, got)
			require.Equal(t, row.shown, shown)
		})
	}
}
