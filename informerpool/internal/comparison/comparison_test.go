// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// TestHazardListOfAnAuditHasNoEnd: an audit keeps a bounded number of
// differences, whatever a server shows, and the second list checks only those.
func TestHazardListOfAnAuditHasNoEnd(t *testing.T) {
	c := &Comparison{}
	c.Begin(nil, nil)
	show := func() {
		for i := range 10 * MaxDifferent {
			c.differ(types.NamespacedName{Name: strconv.Itoa(i)}, Difference{Version: "1"})
		}
	}
	show()
	require.Len(t, c.wrong, MaxDifferent)
	c.owed = map[types.NamespacedName]Difference{{Name: "1"}: {Version: "1"}}
	c.Begin(nil, nil)
	show()
	require.Equal(t, c.owed, c.wrong)
}

// TestComparisonFindsWhatAListShowsDifferently: an object in another state, of
// another uid, not cached or not listed is a difference; one that cannot be
// read is none.
func TestComparisonFindsWhatAListShowsDifferently(t *testing.T) {
	item := func(name, uid, version string) wire.Item {
		it := wire.Item{Namespace: "ns", Name: name}
		it.UID, it.ResourceVersion = uid, version
		return it
	}
	for name, row := range map[string]struct {
		list  func(c *Comparison)
		wrong []string
	}{
		"equal":           {list: func(c *Comparison) { c.Compare(item("a", "u", "1")) }},
		"absent":          {list: func(*Comparison) {}, wrong: []string{"a"}},
		"another version": {list: func(c *Comparison) { c.Compare(item("a", "u", "2")) }, wrong: []string{"a"}},
		"another uid":     {list: func(c *Comparison) { c.Compare(item("a", "v", "1")) }, wrong: []string{"a"}},
		"not cached": {
			list:  func(c *Comparison) { c.Compare(item("a", "u", "1")); c.Compare(item("b", "v", "2")) },
			wrong: []string{"b"},
		},
		"unreadable":       {list: func(c *Comparison) { c.Skip(wire.Identity{Namespace: "ns", Name: "a"}) }},
		"not identifiable": {list: func(c *Comparison) { c.Skip(wire.Identity{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Comparison{}
			c.Begin(map[string]map[string]*packed.Object{"ns": {"a": pack(t)}}, nil)
			row.list(c)
			c.End("5")
			var wrong []string
			for n := range c.wrong {
				wrong = append(wrong, n.Name)
			}
			require.Equal(t, row.wrong, wrong)
			require.Equal(t, len(row.wrong) > 0, c.Differs())
		})
	}
}

// TestOnlyWhatTheStreamOwesIsLost: a difference counts if the second list shows
// it, too, and the stream has not brought it.
func TestOnlyWhatTheStreamOwesIsLost(t *testing.T) {
	c := &Comparison{}
	cached := func() map[string]map[string]*packed.Object {
		return map[string]map[string]*packed.Object{"ns": {"a": pack(t), "b": pack(t), "c": pack(t)}}
	}
	c.Begin(cached(), nil)
	c.End("5")
	c.Settle(func(name types.NamespacedName, d Difference) bool {
		require.Equal(t, Difference{Absent: true, Version: "5"}, d)
		return name.Name == "a"
	})
	c.Owe()
	c.Begin(cached(), map[types.NamespacedName]bool{{Namespace: "ns", Name: "a"}: false})
	c.End("6")
	require.Equal(t, 2, c.Lost(), "a was brought")
	require.Equal(t, []types.NamespacedName{{Namespace: "ns", Name: "a"}}, slices.Collect(c.Uncompared()))
	c.Settle(func(name types.NamespacedName, _ Difference) bool { return name.Name == "b" })
	require.Equal(t, 1, c.Lost(), "b arrived late")
}

func pack(t *testing.T) *packed.Object {
	t.Helper()
	codec := packed.NewCodec()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetNamespace("ns")
	u.SetName("a")
	u.SetUID("u")
	u.SetResourceVersion("1")
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}
