// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

func TestClustersHaveIdentitiesOfTheirOwn(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 3, Objects: 2})
	hosts, tokens := map[string]bool{}, map[string]bool{}
	uids, authorities := map[string]bool{}, map[string]bool{}
	all := f.Clusters()
	for _, c := range all {
		hosts[c.Host], tokens[c.Token], authorities[string(c.CA)] = true, true, true
		_, _, ns := newSite(t, configOf(c), nil, nil).get(t, "/api/v1/namespaces/kube-system", accepts["JSON"])
		metadata, _ := ns["metadata"].(map[string]any)
		uids[fmt.Sprint(metadata["uid"])] = true
	}
	for _, set := range []map[string]bool{hosts, tokens, uids, authorities} {
		require.Len(t, set, 3)
	}

	wrong := all[0]
	wrong.Token = all[1].Token
	refused := newSite(t, configOf(wrong), nil, nil).look(t, podPath, accepts["JSON"])
	require.Equal(t, http.StatusUnauthorized, refused.Code)
	wrong.CA = all[1].CA
	resp, err := newSite(t, configOf(wrong), nil, nil).client.Get(wrong.Host + "/version")
	if err == nil {
		_ = resp.Body.Close()
	}
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
}

// handshake makes a connection and reports whether it resumed a session.
func handshake(t *testing.T, c measure.Cluster, sessions tls.ClientSessionCache) (resumed bool, err error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:            roots,
		ClientSessionCache: sessions,
		MinVersion:         tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(c.Host + "/version") // reads the session ticket
	if err != nil {
		return false, err
	}
	return resp.TLS.DidResume, resp.Body.Close()
}

func TestAnOutageKeepsSessionsAndARestartDoesNot(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: 2})
	c, sessions := f.Clusters()[0], tls.NewLRUClientSessionCache(1)
	_, err := handshake(t, c, sessions)
	require.NoError(t, err)

	require.NoError(t, f.Down())
	_, err = handshake(t, c, sessions)
	require.ErrorContains(t, err, "refused")
	require.NoError(t, f.Up())
	require.NoError(t, f.Up(), "is already up")
	resumed, err := handshake(t, c, sessions)
	require.NoError(t, err)
	require.True(t, resumed)

	require.NoError(t, f.Restart())
	resumed, err = handshake(t, c, sessions)
	require.NoError(t, err)
	require.False(t, resumed)
	require.Equal(t, 3, f.Counts().Opened)
	require.Equal(t, 1, f.Counts().Resumed)
}

func TestRequestsAreCountedByWhatTheyAre(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: few})
	s := newSite(t, configOf(f.Clusters()[0]), nil, nil)
	const ended = "&timeoutSeconds=1&allowWatchBookmarks=true"
	for _, path := range []string{podPath, podPath + "?limit=1", "/readyz", "/api/v1/namespaces/kube-system"} {
		resp := s.open(t, path, accepts["JSON"])
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	for _, query := range []string{
		"?watch=true&resourceVersion=1030" + ended,
		"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" + ended,
		"?watch=true&fieldSelector=metadata.name%3Dfleetcache-history&sendInitialEvents=true" +
			"&resourceVersionMatch=NotOlderThan" + ended,
	} {
		s.follow(t, podPath+query, accepts["JSON"], func() {})
	}
	n := f.Counts()
	require.Equal(t, []int{1, 1, 1, 2, 1, 1},
		[]int{n.Lists, n.Watches, n.Streams, n.History, n.KubeSystem, n.Others})
	require.Equal(t, 7, n.Requests())
	require.Equal(t, 0, n.Live)
	require.Equal(t, few+1+few, n.Objects)
	require.Equal(t, 1, n.Connections)
	require.Greater(t, n.Sent, 50_000)
}

// TestCustomKindsAreMeasured: in the forms in which an API server has them, and
// with as many objects as other kinds.
func TestCustomKindsAreMeasured(t *testing.T) {
	const custom = 5
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: few, Custom: custom})
	s := newSite(t, configOf(f.Clusters()[0]), nil, nil)
	const path = "/apis/bench.example.com/v1/customs1"
	require.Equal(t, "application/vnd.kubernetes.protobuf",
		s.look(t, path, accepts["metadata list in protobuf"]).Media)
	list := s.look(t, path, accepts["list in protobuf"])
	require.Equal(t, "application/json", list.Media)
	require.Equal(t, "bench.example.com/v1 Custom1List", list.Kind)
	require.Len(t, list.Names, few)
	require.Equal(t, slices.Repeat([]string{"bench.example.com/v1 Custom1"}, few), list.ItemKinds,
		"unlike those of built-in kinds")

	task := fleetTask(t, f, "")
	task.Work, task.Clusters, task.First, task.Kinds = measure.WorkKind, f.Clusters(), task.Kinds[0],
		fleetserver.Custom(custom)
	for range task.Kinds {
		task.Counts = append(task.Counts, few)
	}
	for _, task.Subject = range []string{subjects.Fleetcache, subjects.Unstructured} {
		figures, err := task.Run(t.Context(), subjects.Named)
		require.NoError(t, err)
		require.Positive(t, figures["heap"])
		require.InDelta(t, custom*few, figures["objects"], 0)
	}
}

func TestWhatIsNotServedIsRefused(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: 2})
	s := newSite(t, configOf(f.Clusters()[0]), nil, nil)
	for _, path := range []string{
		podPath + "?labelSelector=a%3Db",
		podPath + "?fieldSelector=spec.nodeName%3Da",
		podPath + "?resourceVersion=1001&resourceVersionMatch=Exact",
		"/api/v1/nodes",
	} {
		require.GreaterOrEqual(t, s.look(t, path, accepts["JSON"]).Code, 400, path)
	}
}

func TestChurnIsAsFastAsAskedFor(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 5, Objects: few})
	c := f.Clusters()[0]
	s := newSite(t, configOf(c), nil, nil)
	version := func() (n int) {
		_, err := fmt.Sscan(s.version(t, podPath+"?limit=1"), &n)
		require.NoError(t, err)
		return n
	}
	before, began := version(), time.Now()
	f.Churn(100)
	for version() < before+100 { // the test's time-out ends it
		continue
	}
	took := time.Since(began)
	f.Churn(0)
	require.Greater(t, took, 900*time.Millisecond)
	stopped := version()
	f.Churn(0)
	require.Equal(t, stopped, version())
}

// control serves the control of a fleet.
func control(t *testing.T, f *fleetserver.Fleet) string {
	t.Helper()
	s := httptest.NewServer(f.Control())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s.URL
}

func fleetTask(t *testing.T, f *fleetserver.Fleet, subject string) measure.Task {
	t.Helper()
	return measure.Task{
		Work:     measure.WorkFleet,
		Subject:  subject,
		Control:  control(t, f),
		Kinds:    fleetserver.Kinds(),
		Objects:  few,
		Rest:     300 * time.Millisecond,
		Outages:  []time.Duration{100 * time.Millisecond},
		Patience: time.Minute,
	}
}

func TestAFleetIsMeasured(t *testing.T) {
	const clusters = 3
	f := newFleet(t, fleetserver.Options{Clusters: clusters, Objects: few})
	figures, err := fleetTask(t, f, subjects.Fleetcache).Run(t.Context(), subjects.Named)
	require.NoError(t, err)
	for _, name := range []string{
		"rss", "heap", "goroutines", "connections", "sync/cpu", "sync/elapsed", "sync/peak", "churn/cpu",
		"churn/events", "restart/elapsed", "outage-100ms/elapsed", "relist/elapsed", "relist/peak", "stop/elapsed",
	} {
		require.Positive(t, figures[name], name)
	}
	require.GreaterOrEqual(t, figures["restart/requests"], 1.0, "each informer watches again")
	require.Zero(t, figures["restart/lists"], "the history is there")
	require.GreaterOrEqual(t, figures["relist/lists"], 1.0)
	require.GreaterOrEqual(t, figures["relist/objects"], float64(clusters*few*len(fleetserver.Kinds())))
	require.Zero(t, figures["stop/goroutines"])
	require.Zero(t, f.Counts().Live)
}

// TestAnOperatorIsMeasured: all forms of reading, from ours and a peer.
func TestAnOperatorIsMeasured(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 2, Objects: few})
	for _, subject := range []string{
		subjects.Fleetcache, subjects.FleetcacheShared, subjects.FleetcacheUnstructured, subjects.Typed,
	} {
		figures, err := operatorTask(t, f, subject).Run(t.Context(), subjects.Named)
		require.NoError(t, err)
		for _, name := range []string{"cpu", "allocations", "allocated", "rss", "rate"} {
			require.Positive(t, figures[name+"-3"], name)
			require.Positive(t, figures[name+"-10"], name)
		}
		require.Greater(t, figures["allocations-10"], figures["allocations-3"])
	}
}

func operatorTask(t *testing.T, f *fleetserver.Fleet, subject string) measure.Task {
	t.Helper()
	task := fleetTask(t, f, subject)
	task.Work, task.Rates, task.Gets, task.Rest = measure.WorkOperator, []float64{200}, []int{3, 10}, time.Second
	return task
}

// unread is a subject that loses what has changed.
type unread struct {
	measure.Subject
	measure.Reader
}

func (unread) Get(context.Context, int, measure.Kind, measure.Key) error { return errors.New("lost") }

// TestAnOperatorThatCannotReadHasNoFigures: a read that fails is no cheap read.
func TestAnOperatorThatCannotReadHasNoFigures(t *testing.T) {
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: few})
	_, err := operatorTask(t, f, subjects.Fleetcache).Run(t.Context(), func(name string) (measure.Open, error) {
		open, err := subjects.Named(name)
		return func(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
			s, err := open(ctx, clusters)
			if err != nil {
				return nil, err
			}
			return unread{s, s.(measure.Reader)}, nil
		}, err
	})
	require.ErrorContains(t, err, "lost")
}

// stale is a subject that never sees a change.
type stale struct {
	measure.Subject

	versions map[string]string
}

func (s stale) ResourceVersion(ctx context.Context, m measure.Mark) (string, error) {
	key := fmt.Sprint(m.Cluster, m.Kind.Resource, m.Namespace, m.Name)
	if _, ok := s.versions[key]; !ok {
		version, err := s.Subject.ResourceVersion(ctx, m)
		if err != nil {
			return "", err
		}
		s.versions[key] = version
	}
	return s.versions[key], nil
}

// missing is a subject that lacks an object.
type missing struct{ measure.Subject }

func (s missing) Count(ctx context.Context, k measure.Kind) (int, error) {
	n, err := s.Subject.Count(ctx, k)
	return n - 1, err
}

func TestASubjectThatIsWrongHasNoFigures(t *testing.T) {
	for want, wrong := range map[string]func(measure.Subject) measure.Subject{
		"churn: ": func(s measure.Subject) measure.Subject { return stale{s, map[string]string{}} },
		"sync: ":  func(s measure.Subject) measure.Subject { return missing{s} },
	} {
		f := newFleet(t, fleetserver.Options{Clusters: 2, Objects: few})
		task := fleetTask(t, f, subjects.Fleetcache)
		task.Patience = 5 * time.Second
		var opened measure.Subject
		_, err := task.Run(t.Context(), func(name string) (measure.Open, error) {
			open, err := subjects.Named(name)
			return func(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
				s, err := open(ctx, clusters)
				opened = s
				return wrong(s), err
			}, err
		})
		require.Error(t, err)
		require.True(t, strings.HasPrefix(err.Error(), want), err)
		require.NoError(t, opened.Stop())
	}
}
