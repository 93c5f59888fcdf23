// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func objectMetaIn(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (s *site) serviceAccount(t *testing.T) *testenv.ServiceAccount {
	t.Helper()
	account, err := s.remote.AddServiceAccount(t.Context(), s.name, "reader", fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	return account
}

func caseRevokedToken(t *testing.T, s *site) {
	account := s.serviceAccount(t)
	c := s.connected(t, account.Config())
	require.NoError(t, account.Revoke(t.Context()))
	e := c.clusters.Wait(s.key("a"), events.Disconnected)
	require.Equal(t, "Unauthorized", e.Reason)
	now := s.status(t, c.cc, "a",
		func(now status.Cluster) bool { return now.Phase == status.PhaseDisconnected })
	require.Equal(t, e.Time.Round(time.Second), now.Since.Round(time.Second))
	require.Equal(t, 1, c.w.Status().References)
	require.ErrorIs(t, s.get(t, c.cc, "a"), clustercache.ErrNotConnected)

	require.NoError(t, account.Reissue(t.Context()))
	s.store(t, "a", account.Kubeconfig())
	c.clusters.Wait(s.key("a"), events.Connected)
	require.Empty(t, c.told(t, "three"))
	require.Equal(t, 1, s.lists(t, s.remote))
}

// caseEndpointChanges: the old endpoint keeps answering, as the old node of a
// load balancer does.
func caseEndpointChanges(t *testing.T, s *site) {
	c := s.connected(t, s.remote.Config())
	proxy := s.remote.Proxy(t)
	s.store(t, "a", proxy.Kubeconfig())
	require.Eventually(t, func() bool {
		config, err := c.cc.Cluster(s.key("a")).RESTConfig()
		require.NoError(t, err, "no gap")
		return config.Host == proxy.Config().Host
	}, fleettest.Patience, 10*time.Millisecond)
	require.Empty(t, c.told(t, "three"))
	require.Positive(t, proxy.Stats().Open)
	before := proxy.Stats().ToClient
	require.NoError(t, s.get(t, c.cc, "a", clustercache.MaxStaleness(1)))
	require.Greater(t, proxy.Stats().ToClient, before, "reads use the new endpoint")
	require.Equal(t, 1, s.lists(t, s.remote))
	c.quiet(t)
}

func caseOnlyTheTokenChanges(t *testing.T, s *site) {
	account := s.serviceAccount(t)
	c := s.connected(t, account.Config())
	stop, reads := make(chan struct{}), make(chan error, 1)
	go func() { // live and cached reads all the while
		for {
			select {
			case <-stop:
				reads <- nil
				return
			default:
			}
			object := &corev1.ConfigMap{}
			k := client.ObjectKey{Namespace: s.name, Name: "one"}
			err := errors.Join(c.cc.Cluster(s.key("a")).Reader().Get(t.Context(), k, object, clustercache.CacheOnly),
				c.cc.Cluster(s.key("a")).Reader().Get(t.Context(), k, object, clustercache.MaxStaleness(1)))
			if err != nil {
				reads <- err
				return
			}
		}
	}()
	for range 3 {
		old := s.ready(t, c.cc, "a").Revision
		require.NoError(t, account.Reissue(t.Context()))
		s.store(t, "a", account.Kubeconfig())
		s.status(t, c.cc, "a", func(now status.Cluster) bool { return now.Revision != old })
	}
	require.Empty(t, c.told(t, "three"))
	close(stop)
	require.NoError(t, <-reads)
	require.Equal(t, 1, s.lists(t, s.remote))
	require.Equal(t, 1, s.ready(t, c.cc, "a").Connects)
	c.quiet(t)
}

// caseTokenExpiresFirst uses a client certificate, whose expiry can be chosen.
// The wait between attempts does not matter here: case 23 proves in virtual
// time that a reported change ends it.
func caseTokenExpiresFirst(t *testing.T, s *site) {
	user, err := s.remote.AddUser(t.Context(), s.name, fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	end := time.Now().Add(15 * time.Second)
	user.Reissue(end)
	c := s.connected(t, user.Config())
	require.WithinDuration(t, end, s.ready(t, c.cc, "a").CredentialExpiry, time.Second)
	e := c.clusters.Wait(s.key("a"), events.Disconnected)
	require.Equal(t, "Unauthorized", e.Reason)
	user.Reissue(time.Now().Add(time.Hour))
	s.store(t, "a", user.Kubeconfig())
	c.clusters.Wait(s.key("a"), events.Connected)
	require.Empty(t, c.told(t, "three"))
	require.Equal(t, 1, s.lists(t, s.remote))
}

// caseRecreatedCluster: the hub plays the cluster that took the name.
func caseRecreatedCluster(t *testing.T, s *site) {
	old := s.remote.Proxy(t)
	c := s.connected(t, old.Config())
	epoch := s.ready(t, c.cc, "a").Epoch
	s.create(t, s.hub, "two", "new")
	s.unstore(t, "a")
	s.store(t, "a", s.hub.Kubeconfig())
	c.objects.Wait(func(e events.Object) bool { return e.Type == "Deleted" && e.Old.GetName() == "one" })
	s.status(t, c.cc, "a", func(now status.Cluster) bool { return now.Epoch != epoch })
	require.NoError(t, c.w.WaitForSync(t.Context()))
	require.Eventually(t, func() bool { return old.Stats().Open == 0 }, fleettest.Patience, 10*time.Millisecond,
		"the old connection is gone")
	list := &corev1.ConfigMapList{}
	require.NoError(t, c.cc.Cluster(s.key("a")).Reader().List(t.Context(), list, client.InNamespace(s.name),
		clustercache.CacheOnly))
	names := []string{}
	for _, o := range list.Items {
		if o.Data["in"] != "" {
			require.Equal(t, s.hub.Name(), o.Data["in"])
			names = append(names, o.Name)
		}
	}
	require.ElementsMatch(t, []string{"two", "new"}, names)
}

// kubeconfig is a kubeconfig of the remote for a case to modify.
func (s *site) kubeconfig(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config, err := clientcmd.Load(s.remote.Kubeconfig())
	require.NoError(t, err)
	for _, c := range config.Clusters {
		for _, u := range config.AuthInfos {
			change(c, u)
		}
	}
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

func caseFilesAndPlugins(t *testing.T, s *site) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	config := s.remote.Config()
	cert, certKey, ca := file("cert", config.CertData), file("key", config.KeyData), file("ca", config.CAData)
	ran := filepath.Join(dir, "ran")
	plugin := file("plugin", fmt.Appendf(nil,
		"#!/bin/sh\ntouch %s\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\","+
			"\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}'\n", ran, s.serviceAccount(t).Token()))
	require.NoError(t, os.Chmod(plugin, 0o700)) //nolint:gosec // it must be executable
	changes := map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"user.exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = nil, nil
			u.Exec = &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: plugin,
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		},
		"user.auth-provider": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		"user.tokenFile": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = cert },
		"user.client-key": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKeyData, u.ClientKey = nil, certKey
		},
		"user.client-certificate": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientCertificate = nil, cert
		},
		"cluster.certificate-authority": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.CertificateAuthority = nil, ca
		},
	}
	name := func(field string) string { return "c" + fmt.Sprintf("%x", field) }
	for field, change := range changes {
		s.store(t, name(field), s.kubeconfig(t, change))
	}
	refusing := fleettest.Start(t, s.options(t))
	allowing := fleettest.Start(t,
		s.options(t, func(o *resolver.HubOptions) { o.Allow = resolver.Allow{Files: dir, Exec: []string{plugin}} }))
	for field := range changes {
		require.NoError(t, refusing.Cluster(s.key(name(field))).Engage())
		now := s.status(t, refusing, name(field), func(now status.Cluster) bool { return now.LastError != nil })
		require.Equal(t, status.PhaseRefused, now.Phase, field)
		refused, ok := errors.AsType[*resolver.RefusedError](now.LastError)
		require.True(t, ok)
		require.Equal(t, field, refused.Field)
	}
	require.NoFileExists(t, ran)
	require.Empty(t, s.requests(t, s.remote))
	for _, field := range []string{"user.exec", "user.client-certificate", "user.client-key",
		"cluster.certificate-authority"} {
		require.NoError(t, allowing.Cluster(s.key(name(field))).Engage())
		s.ready(t, allowing, name(field))
	}
	require.FileExists(t, ran)
	require.NoError(t, allowing.Cluster(s.key(name("user.auth-provider"))).Engage())
	now := s.status(t, allowing, name("user.auth-provider"),
		func(now status.Cluster) bool { return now.LastError != nil })
	require.Equal(t, status.PhaseRefused, now.Phase, "there is nothing that could permit it")
}

// caseProbePathForbidden sets the path that Cluster API probes; the default
// path is open to every authenticated client.
func caseProbePathForbidden(t *testing.T, s *site) {
	user, err := s.remote.AddUser(t.Context(), s.name, fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	s.create(t, s.remote, "one")
	s.store(t, "a", testenv.Kubeconfig(user.Config()))
	for _, path := range []string{"/", "/readyz", "/version", "/no/such/path"} {
		o := s.options(t)
		o.ProbePath = path
		cc := fleettest.Start(t, o)
		w := s.watch(t, cc, "a")
		require.NoError(t, w.WaitForSync(t.Context()), path)
		now := s.ready(t, cc, "a")
		require.NoError(t, now.LastError)
		require.Equal(t, 1, now.Connects)
	}
}
