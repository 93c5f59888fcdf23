// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build upgrades

package e2e_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// busy responds like an API server over its limit of requests in flight.
func busy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, "Too many requests, please try again later.")
}

// TestBusyServer makes a server answer all new requests with 429 for a minute.
// Open streams continue, nothing is considered dead, and refused operations
// recover with the server.
func TestBusyServer(t *testing.T) {
	c := testenv.Start(t, 1, testenv.WithCRDs(partsAndSites()...))[0]
	o, r := newOracle(t, c.Config()), newRemote(t, c.Config(), c.Name())
	settle(t, o)
	r.settle(t)
	g := c.Gateway(t)
	// An audit that is refused repeatedly ends in a list. A minute is short
	// compared with the usual interval of audits.
	seldom := func(o *clustercache.Options) { o.Informers.AuditInterval = 0 }
	s := watching(t, one(g.Config()), seldom)
	all := follow(t, starting(t, one(g.Config()), seldom), cluster, r)
	s.equals(cluster, o, patience)
	all.equals(patience)

	g.Answer(http.HandlerFunc(busy))
	began := time.Now()
	for time.Since(began) < 30*time.Second {
		r.touch(t, time.Since(began).String())
		all.equals(healed)
		status, err := s.Cluster(cluster).Status()
		require.NoError(t, err)
		require.True(t, status.Connected, "%+v", status)
		<-time.After(2 * time.Second)
	}
	// Now every informer has to resume, and a new one has to list.
	require.NoError(t, g.SetBackend(c.APIServer))
	g.EndStreams()
	w, err := s.Cluster(cluster).Watch(t.Context(), &corev1.LimitRange{}, client.InNamespace(namespace))
	require.NoError(t, err)
	for time.Since(began) < time.Minute {
		r.touch(t, time.Since(began).String())
		<-time.After(2 * time.Second)
	}
	g.Answer(nil)
	s.ready(cluster)
	all.s.ready(cluster)
	o.put(t, "changed", "afterwards")
	s.equals(cluster, o, healed)
	all.equals(healed)
	all.nothingDeleted(t)
	ctx, cancel := context.WithTimeout(t.Context(), healed)
	defer cancel()
	require.NoError(t, w.WaitForSync(ctx))
	status, err := s.Cluster(cluster).Status()
	require.NoError(t, err)
	require.Zero(t, status.HistoryResets)
	require.Equal(t, 1, status.Connects, "it was never given up")
}
