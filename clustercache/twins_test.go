// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestKeysOfOneClusterAreTwins(t *testing.T) {
	var s twins
	key := func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
	require.Empty(t, s.others(key("b")))
	s.drop(key("b"))

	require.Empty(t, s.put(key("b"), "one"))
	require.Empty(t, s.others(key("b")))
	require.Equal(t, []client.ObjectKey{key("b")}, s.put(key("a"), "one"))
	require.Equal(t, []client.ObjectKey{key("a"), key("b")}, s.put(key("c"), "one"))
	require.Empty(t, s.put(key("c"), "one"), "they were returned")
	require.Equal(t, []client.ObjectKey{key("a"), key("c")}, s.others(key("b")))

	require.Empty(t, s.put(key("b"), "two"))
	require.Empty(t, s.others(key("b")))
	require.Equal(t, []client.ObjectKey{key("c")}, s.others(key("a")))
	s.drop(key("c"))
	require.Empty(t, s.others(key("a")))
	require.Empty(t, s.others(key("c")))
	require.Equal(t, []client.ObjectKey{key("a")}, s.put(key("c"), "one"), "it is new again")

	require.Empty(t, s.put(key("d"), ""))
	require.Empty(t, s.put(key("e"), ""), "two unknown clusters are not one")
	require.Empty(t, s.others(key("e")))
	require.Empty(t, s.put(key("c"), ""))
	require.Empty(t, s.others(key("a")))
}
