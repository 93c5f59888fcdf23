// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func aBackupIsRestoredWithHigherVersions(t *testing.T, c *testenv.Cluster) {
	uid := systemUID(t, c)
	create(t, c, configMap("backed-up"))
	backup, err := c.Backup(t.Context())
	require.NoError(t, err)
	create(t, c, configMap("not-backed-up"))
	require.NoError(t, c.Restore(t.Context(), backup))
	as := clientFor(t, c.Config())
	_, err = get(t.Context(), as, "backed-up")
	require.NoError(t, err)
	_, err = get(t.Context(), as, "not-backed-up")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.Equal(t, uid, systemUID(t, c))
	create(t, c, configMap("again"))
	again, err := get(t.Context(), as, "again")
	require.NoError(t, err)
	version, err := strconv.Atoi(again.ResourceVersion)
	require.NoError(t, err)
	require.Greater(t, version, 1_000_000_000)
}

func aServerBecomesAnotherOnItsPort(t *testing.T, c *testenv.Cluster) {
	addr := c.Addr()
	before, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	gate := "--feature-gates=WatchList=" + strconv.FormatBool(!before)
	require.NoError(t, c.RestartAs(t.Context(), testenv.Args(gate)))
	after, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.Equal(t, addr, c.Addr())
	require.NoError(t, c.RestartAs(t.Context()))
	again, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, again)
}

func TestAGatewayKeepsConnectionsAndDropsEvents(t *testing.T) {
	t.Parallel()
	both := testenv.Start(t, 2)
	g := both[0].Gateway(t)
	as := clientFor(t, g.Config())
	stream, err := as.Watch(t.Context(), &corev1.ConfigMapList{})
	require.NoError(t, err)
	defer stream.Stop()
	next := func() string {
		for e := range stream.ResultChan() {
			if cm, ok := e.Object.(*corev1.ConfigMap); ok && e.Type == watch.Added && cm.Namespace == "default" &&
				cm.Name != "kube-root-ca.crt" {
				return cm.Name
			}
		}
		return ""
	}
	create(t, both[0], configMap("seen"))
	require.Equal(t, "seen", next())
	g.DropEvents(true)
	create(t, both[0], configMap("dropped"))
	_, err = get(t.Context(), as, "dropped")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.Dropped() == 1 }, time.Minute, 10*time.Millisecond)
	g.DropEvents(false)
	create(t, both[0], configMap("seen-again"))
	require.Equal(t, "seen-again", next())

	require.NoError(t, g.SetBackend(both[1].APIServer))
	_, err = get(t.Context(), as, "seen")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	create(t, both[0], configMap("still"))
	require.Equal(t, "still", next(), "an open stream stays where it is")
	g.EndStreams()
	require.Empty(t, next())

	g.Answer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusNotFound) }))
	require.Equal(t, http.StatusNotFound, statusOf(t, g.Config(), "/version"))
	g.Answer(nil)
	require.Equal(t, http.StatusOK, statusOf(t, g.Config(), "/version"))
}
