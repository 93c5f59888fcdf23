// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package histories_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/histories"
)

// TestInformersOfOneResourceFindOneHistory: the second informer that finds a
// restored resource gets the number that the first one got, and an informer
// that was restored once more gets the next one.
func TestInformersOfOneResourceFindOneHistory(t *testing.T) {
	var h histories.Histories
	pods, nodes := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "nodes"}
	require.Equal(t, 0, h.At(pods, "a", false, 0))
	require.Equal(t, 0, h.At(pods, "a", false, 0))

	require.Equal(t, 1, h.At(pods, "a", true, 0), "the first one finds it")
	require.Equal(t, 1, h.At(pods, "a", true, 0), "the second one finds the same")
	require.Equal(t, 2, h.At(pods, "a", true, 1))
	require.Equal(t, 2, h.At(pods, "a", false, 0), "a new informer lists the current one")

	require.Equal(t, 0, h.At(nodes, "a", false, 0), "resources go back one by one")
	require.True(t, h.WentBack(pods, "a"))
	require.False(t, h.WentBack(nodes, "a"))
	require.Equal(t, 0, h.At(pods, "b", true, 2), "an epoch begins anew")
	require.False(t, h.WentBack(pods, "b"))
}
