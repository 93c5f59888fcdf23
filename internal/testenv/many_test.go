// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

var many = flag.Int("testenv.clusters", 4, "clusters that run at once in a test; twenty fit into 8 GiB")

func TestManyClustersRunAtOnce(t *testing.T) {
	clusters := testenv.Start(t, *many)
	uids := map[string]bool{}
	for _, c := range clusters {
		uids[systemUID(t, c)] = true
	}
	require.Len(t, uids, *many)
}
