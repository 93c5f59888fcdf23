// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// asProgram makes this test binary run as the program itself.
const asProgram = "FLEETCACHE_QUICKSTART_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	ctrl.SetLogger(logr.Discard()) // here it only affects what testenv starts
	testenv.Main(m, testenv.VerifyNoLeaks())
}
