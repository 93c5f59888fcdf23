// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/fleetcache/fleetcache/examples/adopt/adopttest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

func TestNamespacesOfTheClusterAreIsolated(t *testing.T) {
	cluster := testenv.Start(t, 1)[0]
	adopttest.Run(t, cluster.Config(), setup)
	adopttest.Isolates(t, cluster.Client(), "shop")
}
