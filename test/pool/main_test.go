// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package pool_test checks what the informers of a pool make of servers that
// are busy, lie, forget, lose their history or lack capabilities, of rights
// that change and of callbacks that misbehave; what audits find; and what the
// users of a pool share and hand over.
package pool_test

import (
	"testing"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }
