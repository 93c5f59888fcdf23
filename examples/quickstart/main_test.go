// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	ctrl.SetLogger(logr.Discard()) // here it only affects what testenv starts
	testenv.Main(m, testenv.VerifyNoLeaks())
}
