// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Connections: how they are made, proven, lost, replaced and healed.
package connecting_test

import (
	"testing"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }
