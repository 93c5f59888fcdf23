// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/examples/internal/storytest"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	goleak.VerifyTestMain(m)
}

func TestTheStoryIsToldInMemoryWithoutServers(t *testing.T) {
	storytest.TellInMemory(t).Order(
		"what they do not show: etcd",
		"ok: east waits, and has no request to change anything (0 writes in its request log)",
		"ok: the wave rest began", "ok: the status names what west lacks",
		"ok: the Secret was noticed, and that no API server is there",
		"ok: west has version 1", "ok: the Rollout is Complete",
		"ok: readiness is watched, and never polled", "ok: the Deployment of east exists again",
		"ok: the Rollout is Failed", "ok: west keeps version 1", "ok: version 3 is Ready in all clusters",
		"13 expectations, all met", "the clusters are gone",
	)
}
