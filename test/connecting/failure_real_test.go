// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// frontDoor is a web server in front of an API server, as in many companies. On
// demand it answers requests itself.
type frontDoor struct {
	*httptest.Server
	instead     atomic.Pointer[http.HandlerFunc]
	certificate atomic.Pointer[tls.Certificate] // nil: the certificate of httptest
}

func newFrontDoor(t *testing.T, c *testenv.Cluster) *frontDoor {
	t.Helper()
	target, err := url.Parse("https://" + c.Addr())
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(c.CA()))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &frontDoor{}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := f.instead.Load(); h != nil {
			(*h)(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.Config.ErrorLog = fleettest.DiscardLog
	// Not GetCertificate, which is not called for clients that connect to an IP
	// address.
	f.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
		error) {
		if pair := f.certificate.Load(); pair != nil {
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}}, nil
		}
		return nil, nil //nolint:nilnil // to crypto/tls it means the default config
	}}
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// answer makes the door answer every request itself, and cuts running ones; nil
// opens it again.
func (f *frontDoor) answer(h http.HandlerFunc) {
	if h == nil {
		f.instead.Store(nil)
		return
	}
	f.instead.Store(&h)
	f.CloseClientConnections()
}

// lead returns a config that leads through the door, with the token of another
// config.
func (f *frontDoor) lead(config *rest.Config) *rest.Config {
	return &rest.Config{Host: f.URL, BearerToken: config.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: fleettest.PemOf(f.Server)}}
}

func page(status int, header, body string) http.HandlerFunc {
	name, value, _ := strings.Cut(header, ": ")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(name, value)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// failureState is one cause that makes a cluster unusable.
type failureState struct {
	name string
	// healthy returns the access before it breaks; nil: it never worked.
	healthy func(t *testing.T) *rest.Config
	// breakIt and repair return the resolver's next answer, if it changes.
	breakIt, repair func(t *testing.T) *rest.Config

	phase  status.Phase
	reason string
	is     func(error) bool
}

// TestRealFailureStatesAreToldApartAndHealByThemselves: each failure has a
// phase, a reason and a typed error of its own, and ends with its cause:
// without a restart, without a new watch, and, where the server kept its
// history, without a list.
func TestRealFailureStatesAreToldApartAndHealByThemselves(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	cc := fleettest.Start(t, fleettest.Brisk(d))
	for _, f := range failureStates(t, c) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // each is a separate cluster to the cache
			namespace := strings.ReplaceAll(f.name, " ", "-")
			require.NoError(t, c.Client().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
			f.run(t, c, cc, d, namespace)
		})
	}
}

func (f failureState) run(t *testing.T, c *testenv.Cluster, cc *clustercache.ClusterCache, d *fleettest.Directory,
	namespace string) {
	t.Helper()
	k := fleettest.Key(namespace)
	tell := func(change func(t *testing.T) *rest.Config) {
		if config := change(t); config != nil {
			d.Set(k, config)
		}
	}
	if f.healthy != nil {
		tell(f.healthy)
	} else {
		tell(f.breakIt)
	}
	createIn(t, c, namespace, "one")
	objects := fleettest.FollowObjects(t,
		cc, events.Selection{Clusters: func(cluster client.ObjectKey) bool { return cluster == k }})
	w, err := cc.Cluster(k).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(namespace))
	require.NoError(t, err)
	if f.healthy != nil {
		require.NoError(t, w.WaitForSync(t.Context()))
		objects.WaitAll("one")
		tell(f.breakIt)
	}

	var s status.Cluster
	require.Eventually(t, func() bool {
		s, err = cc.Cluster(k).Status()
		require.NoError(t, err)
		return !s.Connected && s.Phase == f.phase && s.Reason == f.reason
	}, fleettest.Patience, 10*time.Millisecond, "%v", f.name)
	require.True(t, f.is(s.LastError), "%v", s.LastError)
	begin := time.Now()
	err = cc.Cluster(k).Reader().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "one"},
		&corev1.ConfigMap{})
	require.Less(t, time.Since(begin), 5*time.Second, "a read waits for nothing")
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.True(t, f.is(err), "%v", err)
	e, ok := errors.AsType[*clustercache.ClusterError](err)
	require.True(t, ok)
	require.Equal(t, k, e.Cluster)
	require.Equal(t, fleettest.ConfigMap, e.GVK)
	t.Logf("%s, %s: %v", s.Phase, s.Reason, err)

	createIn(t, c, namespace, "meanwhile")
	tell(f.repair)
	_, before := objects.Wait(fleettest.Named(k, "meanwhile"))
	for _, e := range before {
		require.True(t, f.healthy == nil && e.Initial, "an event for what did not change: %v", e)
	}
	s, err = cc.Cluster(k).Status()
	require.NoError(t, err)
	require.Equal(t, status.PhaseReady, s.Phase)
	require.NoError(t, s.LastError)
	require.Empty(t, s.Reason)
	require.True(t, w.HasSynced())
	require.Equal(t, 1, listsIn(t, c, namespace))
}

// failureStates returns the states in which the server itself is intact.
func failureStates(t *testing.T, c *testenv.Cluster) []failureState {
	t.Helper()
	none := func(*testing.T) *rest.Config { return nil }
	account := func(name string) *testenv.ServiceAccount {
		a, err := c.AddServiceAccount(t.Context(), "default", name, fleettest.ReadConfigMaps...)
		require.NoError(t, err)
		return a
	}
	revoked := account("revoked")
	expiring, err := c.AddUser(t.Context(), "expiring", fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	foreign := httptest.NewTLSServer(http.NotFoundHandler())
	foreign.Close()
	foreignCA := fleettest.PemOf(foreign)
	states := []failureState{
		{
			name:    "revoked token",
			healthy: func(*testing.T) *rest.Config { return revoked.Config() },
			breakIt: func(t *testing.T) *rest.Config { require.NoError(t, revoked.Revoke(t.Context())); return nil },
			repair: func(t *testing.T) *rest.Config {
				require.NoError(t, revoked.Reissue(t.Context()))
				return revoked.Config()
			},
			phase: status.PhaseDisconnected, reason: "Unauthorized", is: apierrors.IsUnauthorized,
		},
		{
			name: "expired client certificate",
			healthy: func(*testing.T) *rest.Config {
				expiring.Reissue(time.Now().Add(15 * time.Second))
				return expiring.Config()
			},
			breakIt: none, // it expires by itself
			repair: func(*testing.T) *rest.Config {
				expiring.Reissue(time.Now().Add(time.Hour))
				return expiring.Config()
			},
			phase: status.PhaseDisconnected, reason: "Unauthorized", is: apierrors.IsUnauthorized,
		},
		{
			name: "wrong authority",
			breakIt: func(*testing.T) *rest.Config {
				config := c.Config()
				config.CAData = foreignCA
				return config
			},
			repair: func(*testing.T) *rest.Config { return c.Config() },
			phase:  status.PhaseDisconnected, reason: "TLSUnknownAuthority",
			is: func(err error) bool { _, ok := errors.AsType[x509.UnknownAuthorityError](err); return ok },
		},
	}
	for _, s := range []struct {
		name   string
		page   http.HandlerFunc
		phase  status.Phase
		reason string
		is     func(error) bool
	}{
		{
			"503 storm", page(http.StatusServiceUnavailable, "Retry-After: 1000000000", "come back in thirty years"),
			status.PhaseDisconnected, "Server", apierrors.IsServiceUnavailable,
		},
		{
			"login page", page(http.StatusOK, "Content-Type: text/html; charset=utf-8",
				"<html><form>who are you?</form></html>"),
			status.PhaseDisconnected, "NotKubernetes", isError(clustercache.ErrNotKubernetes),
		},
		{
			"page that forbids", page(http.StatusForbidden, "Content-Type: text/html", "<html>not from there</html>"),
			status.PhaseDisconnected, "NotKubernetes", isError(clustercache.ErrNotKubernetes),
		},
		{
			"redirect to a login page", page(http.StatusFound, "Location: https://login.example/", ""),
			status.PhaseRefused, "Refused", isError(clustercache.ErrRefused),
		},
	} {
		door := newFrontDoor(t, c)
		visitor := account(strings.ToLower(strings.ReplaceAll(s.name, " ", "-")))
		states = append(states, failureState{
			name:    s.name,
			healthy: func(*testing.T) *rest.Config { return door.lead(visitor.Config()) },
			breakIt: func(*testing.T) *rest.Config { door.answer(s.page); return nil },
			repair:  func(*testing.T) *rest.Config { door.answer(nil); return nil },
			phase:   s.phase, reason: s.reason, is: s.is,
		})
	}
	return states
}

func isError(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func createIn(t *testing.T, c *testenv.Cluster, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"in": c.Name()},
		}))
	}
}

// listsIn counts the answered lists of ConfigMaps in one namespace; a streamed
// list is a watch.
func listsIn(t *testing.T, c *testenv.Cluster, namespace string) int {
	t.Helper()
	requests, err := c.Requests(testenv.Resource("configmaps"), testenv.UserAgent(fleettest.Agent),
		func(r testenv.Request) bool { return r.Namespace == namespace && !r.Rejected })
	require.NoError(t, err)
	lists := 0
	for _, r := range requests {
		if r.Verb == "list" && !fleettest.IsVersionQuestion(r) || r.Verb == "watch" && fleettest.IsStreamedList(r) {
			lists++
		}
	}
	return lists
}

// TestRealServingCertificateOutOfItsTimeIsToldAndHeals: a certificate that has
// expired, and one that is not valid yet, as with a wrong clock.
func TestRealServingCertificateOutOfItsTimeIsToldAndHeals(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	fleettest.Create(t, c, "one")
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	cc := fleettest.Start(t, fleettest.Brisk(d))
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.WaitAll("one")
	now := time.Now()
	for _, tc := range []struct {
		reason          string
		begins, expires time.Time
	}{
		{"TLSExpired", now.Add(-2 * time.Hour), now.Add(-time.Hour)},
		{"TLSNotYetValid", now.Add(time.Hour), now.Add(2 * time.Hour)},
	} {
		require.NoError(t, c.RestartWithCertificate(t.Context(), tc.begins, tc.expires))
		require.Eventually(t, func() bool { return fleettest.Status(t, cc).Reason == tc.reason }, fleettest.Patience,
			10*time.Millisecond, tc.reason)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		for _, err := range []error{s.LastError, fleettest.Get(t, cc)} {
			invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, x509.Expired, invalid.Reason)
		}
		require.ErrorIs(t, fleettest.Get(t, cc), clustercache.ErrNotConnected)
		t.Log(s.LastError)
	}
	require.NoError(t, c.RestartWithCertificate(t.Context(), now.Add(-time.Hour), now.Add(time.Hour)))
	fleettest.Create(t, c, "healed")
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "healed"))
	require.Empty(t, before, "an event for what did not change")
	require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	require.NoError(t, fleettest.Status(t, cc).LastError)
}

// TestRealLostRuleConcernsItsKindOnly: a permission revoked while the watch
// runs is noticed at the next watch request. Cached objects stay, and none is
// delivered as deleted.
func TestRealLostRuleConcernsItsKindOnly(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	readSecrets := fleettest.ReadConfigMaps[0]
	readSecrets.Resources = []string{"secrets"}
	account, err := c.AddServiceAccount(t.Context(), "accounts", "reader", fleettest.ReadConfigMaps[0], readSecrets)
	require.NoError(t, err)
	fleettest.Create(t, c, "one")
	require.NoError(t, c.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: fleettest.ObjectMeta("hidden")}))
	proxy := c.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Redirect(account.Config()))
	o := fleettest.Brisk(d)
	o.Informers.MaxBackoff = time.Second
	cc := fleettest.Start(t, o)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	clusters := fleettest.Follow(t, cc)
	maps := fleettest.Watch(t, cc, client.InNamespace("default"))
	secrets, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{}, client.InNamespace("default"))
	require.NoError(t, err)
	require.NoError(t, errors.Join(maps.WaitForSync(t.Context()), secrets.WaitForSync(t.Context())))
	objects.WaitAll("one", "hidden")
	clusters.Wait(fleettest.Key("a"), events.Connected)

	require.NoError(t, account.Grant(t.Context(), fleettest.ReadConfigMaps...))
	proxy.ResetAll()
	require.Eventually(t, func() bool { return apierrors.IsForbidden(secrets.Status().LastError) }, fleettest.Patience,
		10*time.Millisecond)
	late, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{}, client.InNamespace("kube-system"))
	require.NoError(t, err)
	err = late.WaitForSync(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	e, ok := errors.AsType[*clustercache.ClusterError](err)
	require.True(t, ok)
	require.Equal(t, "Secret", e.GVK.Kind)
	require.Equal(t, fleettest.Key("a"), e.Cluster)
	t.Log(err)
	fleettest.Create(t, c, "two")
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "two"))
	require.Empty(t, before)
	require.NoError(t, maps.Status().LastError)
	require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)

	require.NoError(t, c.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: fleettest.ObjectMeta("seen-again")}))
	require.NoError(t, account.Grant(t.Context(), fleettest.ReadConfigMaps[0], readSecrets))
	_, before = objects.Wait(fleettest.Named(fleettest.Key("a"), "seen-again"))
	for _, e := range before { // the late watch received its own
		require.NotEqual(t, "default", e.Object().GetNamespace(), "an event for what did not change: %v", e)
	}
	require.Eventually(t, func() bool { return secrets.Status().LastError == nil && late.HasSynced() },
		fleettest.Patience, 10*time.Millisecond)
	require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	for len(clusters.Events) > 0 {
		require.NotEqual(t, events.Disconnected, (<-clusters.Events).Type)
	}
}
