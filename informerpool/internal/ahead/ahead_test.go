// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool/internal/ahead"
)

// TestLastChangeCounts: an earlier one that is recorded late does not replace
// it.
func TestLastChangeCounts(t *testing.T) {
	var c ahead.Changes
	one, other := ahead.NameOf("default", "one"), ahead.NameOf("default", "other")
	require.False(t, c.Any())
	c.Record(one, 5, 5)
	c.Record(one, 4, 9)
	require.EqualValues(t, 5, c.Last(one))
	require.Zero(t, c.Last(other))
	require.False(t, c.LastedUntil(one, 4, 4))
	require.True(t, c.LastedUntil(one, 5, 5))
	require.False(t, c.LastedUntil(one, 5, 6))
	c.Record(one, 5, 7)
	require.True(t, c.LastedUntil(one, 5, 7))

	c.Forget(4)
	require.EqualValues(t, 5, c.Last(one))
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
		if c.Record(ahead.NameOf("default", strconv.FormatUint(version, 10)), version, version) {
			c.Forget(0)
		}
	}
	require.EqualValues(t, n, c.Last(ahead.NameOf("default", strconv.Itoa(n))))
	of := c.Last(ahead.NameOf("default", "1"))
	require.Greater(t, of, uint64(n-2*ahead.Limit))
	require.Less(t, of, uint64(n))
	require.Equal(t, of, c.Last(ahead.NameOf("default", "never changed")))
	c.Forget(of)
	require.Zero(t, c.Last(ahead.NameOf("default", "1")))
	require.EqualValues(t, n, c.Last(ahead.NameOf("default", strconv.Itoa(n))))
}

// TestDebtsArePaidByWhoReachesThem: each is owed to whoever has shown it.
func TestDebtsArePaidByWhoReachesThem(t *testing.T) {
	var d ahead.Debts[string]
	all := func(string) bool { return true }
	d.Owe("wide", 7)
	d.Owe("wide", 5)
	d.Owe("named", 9)
	d.Listed("listed", 8)
	require.EqualValues(t, 9, d.Owes(0, all))
	require.EqualValues(t, 7, d.Owes(6, func(to string) bool { return to == "wide" }))
	require.Zero(t, d.Owes(7, func(to string) bool { return to == "wide" }))
	require.Equal(t, map[string]uint64{"listed": 8}, d.Lists(7))
	copied := d.Clone()
	d.Pay(8)
	require.EqualValues(t, 9, d.Owes(0, all))
	require.Empty(t, d.Lists(0))
	d.Pay(9)
	require.Zero(t, d.Owes(0, all))
	require.EqualValues(t, 9, copied.Owes(0, all))
}
