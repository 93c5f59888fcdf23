// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestLifecycle uses one cluster for all subtests, one after the other, since a
// start takes two seconds of CPU time. Each leaves it running but the last.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testenv.Cluster)
	}{
		{"ARestartKeepsAddressDataCertificatesAndTokens", aRestartKeepsAddressDataCertificatesAndTokens},
		{"AStoppedServerRefusesConnections", aStoppedServerRefusesConnections},
		{"ANewCAIsNotTrustedByOldClientsAndCredentialsStayValid", aNewCAIsNotTrustedByOldClients},
		{"ARollbackUndoesHistoryAndKeepsIdentity", aRollbackUndoesHistoryAndKeepsIdentity},
		{"ASnapshotUnderLoadIsConsistent", aSnapshotUnderLoadIsConsistent},
		{"ABackupIsRestoredWithHigherVersions", aBackupIsRestoredWithHigherVersions},
		{"AServerBecomesAnotherOnItsPort", aServerBecomesAnotherOnItsPort},
		{"AWipedClusterIsAnotherOneAtTheSameURL", aWipedClusterIsAnotherOneAtTheSameURL},
		{"APausedServerIsSilentAndGoesOnWhereItWas", aPausedServerIsSilentAndGoesOnWhereItWas},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, c) }) {
			return // the cluster may be in any state
		}
	}
}

func aRestartKeepsAddressDataCertificatesAndTokens(t *testing.T, c *testenv.Cluster) {
	kubeconfig, uid := c.Kubeconfig(), systemUID(t, c)
	account, err := c.AddServiceAccount(t.Context(), "default", "reader", readConfigMaps())
	require.NoError(t, err)
	for name, restart := range map[string]func() error{
		"orderly": func() error { return c.Restart(t.Context()) },
		"killed":  func() error { return errors.Join(c.Kill(), c.StartAPIServer(t.Context())) },
	} {
		create(t, c, configMap(name))
		watch, err := clientFor(t, c.Config()).Watch(t.Context(), &corev1.ConfigMapList{})
		require.NoError(t, err)
		require.NoError(t, restart(), name)
		drain(watch.ResultChan())
		require.Equal(t, kubeconfig, c.Kubeconfig())
		require.Equal(t, uid, systemUID(t, c))
		_, err = get(t.Context(), fromKubeconfig(t, kubeconfig), name)
		require.NoError(t, err)
		_, err = get(t.Context(), clientFor(t, account.Config()), name)
		require.NoError(t, err, "the token issued before")
	}
	starts, err := c.Requests(testenv.Verb("create"), testenv.Resource("configmaps"), testenv.ByUser("admin"))
	require.NoError(t, err)
	require.Len(t, starts, 2, "counting goes on over restarts")
	require.NoError(t, c.StartAPIServer(t.Context()), "of one that runs")
}

func aStoppedServerRefusesConnections(t *testing.T, c *testenv.Cluster) {
	as := clientFor(t, c.Config())
	require.NoError(t, c.StopAPIServer(t.Context()))
	_, err := get(t.Context(), as, "any")
	require.ErrorContains(t, err, "connection refused")
	require.Error(t, c.Pause(), "nothing to pause")
	require.NoError(t, c.StartAPIServer(t.Context()))
	_, err = get(t.Context(), as, "any")
	require.True(t, apierrors.IsNotFound(err), err)
}

func aNewCAIsNotTrustedByOldClients(t *testing.T, c *testenv.Cluster) {
	old, uid := c.Config(), systemUID(t, c)
	user, err := c.AddUser(t.Context(), "jane", readConfigMaps())
	require.NoError(t, err)
	require.NoError(t, c.RestartWithNewCA(t.Context()))
	require.Equal(t, old.Host, c.Config().Host)
	require.Equal(t, old.CertData, c.Config().CertData)
	_, err = get(t.Context(), clientFor(t, old), "any")
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, uid, systemUID(t, c), "by the renewed client")
	require.NoError(t, clientFor(t, user.Config()).List(t.Context(), &corev1.ConfigMapList{}))
	require.Equal(t, http.StatusOK, statusOf(t, c.Redirect(old), "/version"))
}

func TestACertificateCanBeExpired(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	ca := c.CA()
	require.NoError(t, c.RestartWithCertificate(t.Context(), time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
	require.Equal(t, ca, c.CA())
	_, err := get(t.Context(), c.Client(), "any")
	require.ErrorContains(t, err, "certificate has expired")
}

func aWipedClusterIsAnotherOneAtTheSameURL(t *testing.T, c *testenv.Cluster) {
	kubeconfig, uid := c.Kubeconfig(), systemUID(t, c)
	user, err := c.AddUser(t.Context(), "joe", readConfigMaps())
	require.NoError(t, err)
	create(t, c, configMap("gone"))
	require.NoError(t, c.Wipe(t.Context()))
	require.Equal(t, kubeconfig, c.Kubeconfig())
	require.NotEqual(t, uid, systemUID(t, c))
	_, err = get(t.Context(), c.Client(), "gone")
	require.True(t, apierrors.IsNotFound(err), err)
	as := clientFor(t, user.Config())
	require.True(t, apierrors.IsForbidden(as.List(t.Context(), &corev1.ConfigMapList{})))
	require.NoError(t, user.Grant(t.Context(), readConfigMaps()))
	require.NoError(t, as.List(t.Context(), &corev1.ConfigMapList{}))
}

func resourceVersion(t *testing.T, c *testenv.Cluster) int {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, c.Client().List(t.Context(), &list))
	rv, err := strconv.Atoi(list.ResourceVersion)
	require.NoError(t, err)
	return rv
}

func aRollbackUndoesHistoryAndKeepsIdentity(t *testing.T, c *testenv.Cluster) {
	uid := systemUID(t, c)
	create(t, c, configMap("before"))
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	for round := range 2 { // a snapshot can be restored again
		for i := range 50 {
			create(t, c, configMap("ghost-"+strconv.Itoa(i)))
		}
		require.NoError(t, c.Client().Delete(t.Context(), configMap("before")))
		rv := resourceVersion(t, c)
		require.NoError(t, c.Rollback(t.Context(), snapshot), "round %d", round)
		require.Less(t, resourceVersion(t, c), rv)
		require.Equal(t, uid, systemUID(t, c))
		_, err = get(t.Context(), c.Client(), "before")
		require.NoError(t, err)
		_, err = get(t.Context(), c.Client(), "ghost-0")
		require.True(t, apierrors.IsNotFound(err), err)
	}
}

func aSnapshotUnderLoadIsConsistent(t *testing.T, c *testenv.Cluster) {
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan int)
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			if c.Client().Create(ctx, configMap("n-"+strconv.Itoa(i))) == nil {
				written <- i
			}
		}
	}()
	var last int
	for range 50 {
		last = <-written
	}
	snapshots := make(chan *testenv.Snapshot, 1)
	go func() {
		s, err := c.Snapshot(t.Context())
		if err != nil {
			t.Errorf("take a snapshot: %v", err)
		}
		snapshots <- s
	}()
	var snapshot *testenv.Snapshot
	for snapshot == nil && !t.Failed() {
		select {
		case snapshot = <-snapshots:
		case <-written:
		}
	}
	cancel()
	drain(written)
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	var list corev1.ConfigMapList
	require.NoError(t, c.Client().List(t.Context(), &list, client.InNamespace("default")))
	have := map[string]bool{}
	for _, cm := range list.Items {
		have[cm.Name] = true
	}
	for i := range last + 1 {
		require.True(t, have["n-"+strconv.Itoa(i)], "what was acknowledged before the snapshot is there: %d", i)
	}
}

func aPausedServerIsSilentAndGoesOnWhereItWas(t *testing.T, c *testenv.Cluster) {
	as := clientFor(t, c.Config())
	watch, err := as.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: strconv.Itoa(resourceVersion(t, c))}})
	require.NoError(t, err)
	defer watch.Stop()

	require.NoError(t, c.Pause())
	_, err = get(soon(t, 100*time.Millisecond), as, "any")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Resume())

	require.NoError(t, c.PauseEtcd())
	require.Equal(t, http.StatusOK, statusOf(t, c.Config(), "/version"))
	_, err = get(soon(t, 100*time.Millisecond), as, "any")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.ResumeEtcd())

	c.OnEtcdStart(func() error { return errors.New("a second one was started") })
	require.NoError(t, c.StartEtcd(t.Context()), "it runs")
	create(t, c, configMap("after"))
	event := <-watch.ResultChan()
	require.Equal(t, "after", event.Object.(*corev1.ConfigMap).Name, "the watch survived both")

	require.NoError(t, c.Pause())
	require.NoError(t, c.StopAPIServer(t.Context()), "a paused server can be stopped")
}

func TestAReplicaServesTheSameClusterAndCanLag(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	replica, err := c.AddReplica(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, c.Addr(), replica.Addr())
	account, err := c.AddServiceAccount(t.Context(), "default", "reader", readConfigMaps())
	require.NoError(t, err)
	create(t, c, configMap("both"))
	_, err = get(t.Context(), clientFor(t, replica.Config()), "both")
	require.NoError(t, err)
	_, err = get(t.Context(), clientFor(t, replica.Redirect(account.Config())), "both")
	require.NoError(t, err, "a token of the cluster")

	require.NoError(t, replica.Pause())
	create(t, c, configMap("later"))
	require.NoError(t, c.Kill())
	require.NoError(t, replica.Resume())
	_, err = get(t.Context(), clientFor(t, replica.Config()), "later")
	require.NoError(t, err)
	require.NoError(t, c.Wipe(t.Context()), "starts both")
	_, err = get(t.Context(), clientFor(t, replica.Config()), "both")
	require.True(t, apierrors.IsNotFound(err), err)
}

func TestClustersOfOnePKICannotBeToldApartByTLS(t *testing.T) {
	t.Parallel()
	clusters := testenv.Start(t, 2, testenv.WithSharedPKI())
	a, b := clusters[0], clusters[1]
	require.NotEqual(t, systemUID(t, a), systemUID(t, b))
	user, err := a.AddUser(t.Context(), "jane", readConfigMaps())
	require.NoError(t, err)
	_, err = b.AddUser(t.Context(), "jane", readConfigMaps())
	require.NoError(t, err)
	snapshot, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, b.Rollback(t.Context(), snapshot), "is of cluster")
	p := a.Proxy(t)
	as := clientFor(t, p.Redirect(user.Config()))
	create(t, b, configMap("on-b"))
	_, err = get(t.Context(), as, "on-b")
	require.True(t, apierrors.IsNotFound(err), err)
	p.SetBackend(b.Addr())
	p.ResetAll()
	_, err = get(t.Context(), as, "on-b")
	require.NoError(t, err)
}
