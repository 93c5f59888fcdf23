// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestTwentyClustersRunAtOnce(t *testing.T) {
	clusters := testenv.Start(t, 20)
	uids := map[string]bool{}
	for _, c := range clusters {
		uids[systemUID(t, c)] = true
	}
	require.Len(t, uids, 20)
}
