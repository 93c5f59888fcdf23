// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// TestHazardInformersSpinWhileTheFleetStops: Stop closes each cluster, and an
// informer that waited for one requested it repeatedly until its own end. A
// thousand unreachable clusters kept all cores busy for seconds.
func TestHazardInformersSpinWhileTheFleetStops(t *testing.T) {
	fleet, err := resolver.Static(nil)
	require.NoError(t, err)
	cc, err := New(Options{Resolver: fleet})
	require.NoError(t, err)
	key := client.ObjectKey{Name: "away"}
	require.NoError(t, cc.Engage(key))
	cc.cancel(ErrClosed)
	cc.find(key).close()
	_, err = cc.endpoint(context.Background(), key)
	require.ErrorIs(t, err, ErrClosed)
}
