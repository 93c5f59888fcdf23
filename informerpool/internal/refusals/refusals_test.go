// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package refusals_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
)

var errLarge = errors.New("too large")

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestRefusedObjectIsUnknownUntilItIsAccepted: it concerns its name, and lists
// of its namespace and of all.
func TestRefusedObjectIsUnknownUntilItIsAccepted(t *testing.T) {
	var s refusals.Set
	require.True(t, s.Add(named("ns", "a"), "7", errLarge))
	require.False(t, s.Add(named("ns", "a"), "7", errLarge), "it is known already")
	require.True(t, s.Has(named("ns", "a")))
	require.False(t, s.Has(named("ns", "b")))
	require.True(t, s.In("ns"))
	require.True(t, s.In(""))
	require.False(t, s.In("other"))
	require.NoError(t, s.All())
	require.Equal(t, errLarge, s.Last())
	require.Equal(t, 1, s.Len())

	s.Forget(named("ns", "a"), "6")
	require.True(t, s.Has(named("ns", "a")), "a state from before says nothing of it")
	require.True(t, s.At(named("ns", "a"), "7"))
	require.False(t, s.At(named("ns", "a"), "6"))
	s.Forget(named("ns", "a"), "7")
	require.False(t, s.Has(named("ns", "a")))
	require.False(t, s.In(""))
	require.Zero(t, s.Len())
}

// TestHazardServerRefusedWithoutEnd: beyond a number of names, or of their
// bytes, every object is unknown, and no name is kept.
func TestHazardServerRefusedWithoutEnd(t *testing.T) {
	for kind, tc := range map[string]struct {
		name func(int) string
		most int
	}{
		"names":   {strconv.Itoa, 1024},
		"bytes":   {func(i int) string { return strings.Repeat("x", 1000) + strconv.Itoa(i) }, 131},
		"no name": {func(int) string { return "" }, 0},
	} {
		t.Run(kind, func(t *testing.T) {
			var s refusals.Set
			for i := range 2000 {
				s.Add(named("ns", tc.name(i)), "", errLarge)
				require.LessOrEqual(t, s.Len(), tc.most)
			}
			require.Equal(t, errLarge, s.All())
			require.Zero(t, s.Len())
			require.True(t, s.Has(named("other", "any")))
			require.True(t, s.In("other"))
			require.False(t, s.Add(named("ns", "one more"), "1", errLarge))
			s.Forget(named("ns", "one more"), "1")
			require.True(t, s.Has(named("ns", "one more")), "one accepted object does not make the others known")
		})
	}
}

// TestForgottenNamesMakeRoom: the bytes of names are given back.
func TestForgottenNamesMakeRoom(t *testing.T) {
	var s refusals.Set
	for i := range 10_000 {
		name := named("ns", strings.Repeat("x", 1000)+strconv.Itoa(i))
		s.Add(name, "1", errLarge)
		s.Forget(name, "2")
	}
	require.NoError(t, s.All())
}
