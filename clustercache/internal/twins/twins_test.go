// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package twins_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/twins"
)

func TestKeysWithOneIdentityAreTwins(t *testing.T) {
	s := twins.New(cmp.Compare[string])
	require.Empty(t, s.Put("b", "one"))
	require.Empty(t, s.Others("b"))
	require.Equal(t, []string{"b"}, s.Put("a", "one"))
	require.Equal(t, []string{"a", "b"}, s.Put("c", "one"))
	require.Empty(t, s.Put("c", "one"), "they were returned")
	require.Equal(t, []string{"a", "c"}, s.Others("b"))

	require.Empty(t, s.Put("b", "two"))
	require.Empty(t, s.Others("b"))
	require.Equal(t, []string{"c"}, s.Others("a"))
	s.Drop("c")
	require.Empty(t, s.Others("a"))
	require.Empty(t, s.Others("c"))
	require.Equal(t, []string{"a"}, s.Put("c", "one"), "it is new again")

	require.Empty(t, s.Put("d", ""))
	require.Empty(t, s.Put("e", ""), "no identity is none that two keys share")
	require.Empty(t, s.Others("e"))
	require.Empty(t, s.Put("c", ""))
	require.Empty(t, s.Others("a"))
}
