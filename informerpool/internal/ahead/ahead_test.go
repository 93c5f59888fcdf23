// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ahead"
)

// TestLastChangeCounts: an earlier one that is recorded late does not replace
// it.
func TestLastChangeCounts(t *testing.T) {
	var c ahead.Changes
	one, other := ahead.NameOf("default", "one"), ahead.NameOf("default", "other")
	require.False(t, c.Any())
	c.Record(one, ahead.Change{At: 5, Until: 5})
	c.Record(one, ahead.Change{At: 4, Until: 9, Gone: true})
	require.Equal(t, ahead.Change{At: 5, Until: 5}, c.Last(one))
	require.Zero(t, c.Last(other))
	c.Record(one, ahead.Change{At: 5, Until: 7})
	require.Equal(t, ahead.Change{At: 5, Until: 7}, c.Last(one))

	c.Forget(4)
	require.EqualValues(t, 5, c.Last(one).At)
	c.Forget(5)
	require.False(t, c.Any())
	require.Zero(t, c.Last(one))
}

// TestForgottenChangesHoldEveryReadBack: what an informer that hangs has not
// reached takes a bounded memory.
func TestForgottenChangesHoldEveryReadBack(t *testing.T) {
	var c ahead.Changes
	const n = 10 * ahead.Limit
	for version := uint64(1); version <= n; version++ {
		if c.Record(ahead.NameOf("default", strconv.FormatUint(version, 10)), ahead.Change{At: version, Gone: true}) {
			c.Forget(0)
		}
	}
	require.Equal(t, ahead.Change{At: n, Gone: true}, c.Last(ahead.NameOf("default", strconv.Itoa(n))))
	of := c.Last(ahead.NameOf("default", "1"))
	require.False(t, of.Gone, "nobody knows")
	require.Greater(t, of.At, uint64(n-2*ahead.Limit))
	require.Less(t, of.At, uint64(n))
	require.Equal(t, of, c.Last(ahead.NameOf("default", "never changed")))
	c.Forget(of.At)
	require.Zero(t, c.Last(ahead.NameOf("default", "1")))
	require.EqualValues(t, n, c.Last(ahead.NameOf("default", strconv.Itoa(n))).At)
}

// TestDebtsArePaidByWhoReachesThem: each is owed to who has shown it. What a
// list lacks is owed until it has changed.
func TestDebtsArePaidByWhoReachesThem(t *testing.T) {
	var d ahead.Debts[string]
	all := func(string) bool { return true }
	gone := types.NamespacedName{Namespace: "default", Name: "gone"}
	shows := func(o types.NamespacedName) bool { return o == gone }
	d.Owe("wide", 7)
	d.Owe("wide", 5)
	d.Owe("named", 9)
	d.Listed("listed", 10)
	require.EqualValues(t, 9, d.Owes(0, all, shows))
	require.EqualValues(t, 7, d.Owes(6, func(to string) bool { return to == "wide" }, shows))
	require.Zero(t, d.Owes(7, func(to string) bool { return to == "wide" }, shows))
	require.Equal(t, map[string]uint64{"listed": 10}, maps.Collect(d.Lists(9)))
	require.Empty(t, maps.Collect(d.Lists(10)))

	d.Lacks("listed", 10, gone)
	copied := d.Clone()
	require.EqualValues(t, 10, d.Owes(9, all, shows))
	require.Zero(t, d.Owes(9, all, func(types.NamespacedName) bool { return false }), "it is not shown any more")
	d.Changed(ahead.NameOf(gone.Namespace, gone.Name), 9)
	require.Zero(t, d.Owes(9, all, shows))
	require.EqualValues(t, 10, copied.Owes(9, all, shows))
	d.Pay(9)
	require.True(t, d.Any())
	d.Pay(10)
	require.False(t, d.Any())
	for n := range 5_000 {
		copied.Owe(strconv.Itoa(n), 9)
	}
	none := func(string) bool { return false }
	require.EqualValues(t, 10, copied.Owes(9, none, shows), "they are not kept one by one")
	copied.Pay(10)
	require.Zero(t, copied.Owes(0, all, shows))
}
