// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	testenv.Main(m, testenv.VerifyNoLeaks())
}

func TestTheStoryIsToldInMemoryWithoutServers(t *testing.T) {
	t.Parallel()
	storytest.TellInMemory(t).Order(
		"what they do not show: etcd",
		"ok: test is NotReady", "ok: staging is Waiting", "ok: staging is Ready",
		"ok: production is NoAccess", "ok: production is NotServed", "ok: production is NotFound",
		"ok: production is Ready",
		"the right to Rollouts is revoked", "ok: production is Forbidden", "ok: production is Ready",
		"east's API server is killed", "ok: staging is Unreachable", "ok: staging is Ready",
		"the Pipeline is deleted", "ok: production is Deleting", "the finalizer of the Rollout is removed",
		"ok: the Pipeline is gone", "ok: 3 caches before, none", "16 expectations, all met", "the clusters are gone",
	)
}

func TestUnknownArgumentIsRefused(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, story.ExitUsage, program().Execute(t.Context(), []string{"west"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), `unknown argument "west"`)
}
