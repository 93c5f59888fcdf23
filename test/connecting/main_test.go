// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Connections: how they are made, proven, lost, replaced and healed.
package connecting_test

import (
	"os"
	"testing"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(pluginVariable); role != "" {
		playPlugin(role)
		return
	}
	testenv.Main(m, testenv.VerifyNoLeaks())
}
