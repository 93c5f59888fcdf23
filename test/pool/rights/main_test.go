// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package rights_test checks how soon informers notice that rights were revoked
// and granted.
package rights_test

import (
	"testing"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }
