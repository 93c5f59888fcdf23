// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestGateways puts a layer 7 proxy between the cache and its cluster.
func TestGateways(t *testing.T) {
	t.Parallel()
	both := testenv.Start(t, 2)
	t.Run("answers everything with an HTML 404 for a while", func(t *testing.T) { htmlAnswers(t, both[0]) })
	t.Run("drops events and passes bookmarks", func(t *testing.T) { droppedEvents(t, both[0]) })
	t.Run("switches to another cluster and keeps connections",
		func(t *testing.T) { switchedBackend(t, both[0], both[1]) })
}

// page responds like an ingress without a route.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "<html><head><title>404 Not Found</title></head></html>")
}

func htmlAnswers(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	g := c.Gateway(t)
	s := watching(t, one(g.Config()), nil)
	s.equals(cluster, o, patience)
	before, err := s.cached(cluster)
	require.NoError(t, err)
	deletes := s.deletes(cluster)

	g.Answer(http.HandlerFunc(page))
	// Open streams end, so that everything has to be requested again.
	require.NoError(t, g.SetBackend(c.APIServer))
	g.EndStreams()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		list := &corev1.ConfigMapList{}
		if err := s.Cluster(cluster).Reader().List(t.Context(), list, client.InNamespace(namespace)); err == nil {
			require.Empty(t, differ(before, stateOf(list.Items)), "an answer without an error is the server's state")
		}
		<-time.After(50 * time.Millisecond)
	}
	require.Equal(t, deletes, s.deletes(cluster), "nothing was deleted")
	g.Answer(nil)
	s.ready(cluster)
	o.put(t, "changed", "meanwhile")
	s.equals(cluster, o, healed)
	require.Equal(t, deletes, s.deletes(cluster))
}

func droppedEvents(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	g := c.Gateway(t)
	s := watching(t, one(g.Config()), nil)
	s.equals(cluster, o, patience)
	g.DropEvents(true)
	deletes := s.deletes(cluster)["gone"]
	o.put(t, "changed", "unheard of")
	o.put(t, "late", "unheard of")
	o.remove(t, "gone")
	require.Eventually(t, func() bool { return g.Dropped() >= 3 }, patience, 10*time.Millisecond)
	t.Logf("equal after %s", s.equals(cluster, o, found))
	require.Equal(t, deletes+1, s.deletes(cluster)["gone"], "the delete is told")
	g.DropEvents(false)
	o.put(t, "changed", "heard of")
	s.equals(cluster, o, healed)
}

// switched is a cluster behind a gateway that is switched to another cluster.
type switched struct {
	*subject

	a, b    oracle
	gateway *testenv.Gateway
	writes  client.Client
	first   status.Cluster
}

func newSwitched(t *testing.T, a, b *testenv.Cluster) *switched {
	t.Helper()
	s := &switched{a: newOracle(t, a.Config()), b: newOracle(t, b.Config()), gateway: a.Gateway(t)}
	settle(t, s.a)
	s.b.put(t, "stays", "in b")
	s.b.put(t, "only-b", "in b")
	s.subject = watching(t, one(s.gateway.Config()), nil)
	s.equals(cluster, s.a, patience)
	var err error
	s.first, err = s.Cluster(cluster).Status()
	require.NoError(t, err)
	s.writes, err = s.Cluster(cluster).Client()
	require.NoError(t, err)
	return s
}

// use reads and writes once. Each list must come from a single cluster. use
// reports whether a write succeeded while the cache believed it was still
// connected to the first cluster.
func (s *switched) use() (writtenBlindly bool) {
	list := &corev1.ConfigMapList{}
	if err := s.Cluster(cluster).Reader().List(s.t.Context(), list, client.InNamespace(namespace)); err == nil {
		names := stateOf(list.Items)
		_, ofA := names["changed"]
		_, ofB := names["only-b"]
		require.NotEqual(s.t, ofA, ofB, "a list of two clusters, or of none: %v", names)
	}
	before := s.moved()
	err := s.writes.Create(s.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "written-"}})
	return err == nil && !before && !s.moved()
}

// moved reports whether the cache has detected that another cluster responds.
func (s *switched) moved() bool {
	status, err := s.Cluster(cluster).Status()
	return err == nil && status.Epoch != s.first.Epoch
}

// settled requires that everything comes from the other cluster.
func (s *switched) settled() {
	s.ready(cluster)
	s.equals(cluster, s.b, patience)
	after, err := s.Cluster(cluster).Status()
	require.NoError(s.t, err)
	require.NotEqual(s.t, s.first.UID, after.UID)
	require.Positive(s.t, s.deletes(cluster)["changed"], "what only the first one held is told as deleted")
	var origin clustercache.Origin
	require.NoError(s.t, s.Cluster(cluster).Reader().Get(s.t.Context(),
		client.ObjectKey{Namespace: namespace, Name: "only-b"},
		&corev1.ConfigMap{}, &origin))
	require.Equal(s.t, after.Epoch, origin.Epoch)
}

// switchedBackend: the streams end with the switch, so it is detected at once.
func switchedBackend(t *testing.T, a, b *testenv.Cluster) {
	s := newSwitched(t, a, b)
	require.NoError(t, s.gateway.SetBackend(b.APIServer))
	s.gateway.EndStreams()
	for began := time.Now(); !s.moved(); {
		s.use()
		require.Less(t, time.Since(began), 15*time.Second)
		<-time.After(50 * time.Millisecond)
	}
	s.settled()
}
