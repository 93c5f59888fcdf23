// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// listener is a controller that counts its requests.
type listener struct {
	controller.Controller

	requests atomic.Int64
	labels   atomic.Value // of the last object that was mapped
}

// listen adds a controller, with a source that the caller makes.
func (s *site) listen(t *testing.T, name string, opts ...capi.GetClusterSourceOption) *listener {
	t.Helper()
	l := &listener{}
	var err error
	l.Controller, err = controller.New(s.namespace+"-"+name, s.mgr, controller.Options{
		Reconciler: reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			l.requests.Add(1)
			return ctrl.Result{}, nil
		}),
	})
	require.NoError(t, err)
	events := s.GetClusterSource(name, func(_ context.Context, o client.Object) []ctrl.Request {
		l.labels.Store(o.(*clusterv1.Cluster).Labels)
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}, opts...)
	require.NoError(t, l.Watch(events))
	return l
}

func (l *listener) wait(t *testing.T, n int64) {
	t.Helper()
	eventually(t, "requests", func() bool { return l.requests.Load() >= n })
	require.Equal(t, n, l.requests.Load())
}

func behaviorWatch(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	l := &listener{}
	var err error
	l.Controller, err = controller.New(s.namespace+"-watch", s.mgr, controller.Options{
		Reconciler: reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Namespace == s.namespace {
				l.requests.Add(1)
			}
			return ctrl.Result{}, nil
		}),
	})
	require.NoError(t, err)
	s.start(t)
	s.connected(t)

	watcher := func(name string) capi.Watcher {
		return capi.NewWatcher(capi.WatcherOptions{
			Name:         name,
			Watcher:      l,
			Kind:         &corev1.Secret{},
			EventHandler: &handler.EnqueueRequestForObject{},
		})
	}
	require.Error(t, s.Watch(t.Context(), s.key(), watcher("")))
	for range 3 {
		require.NoError(t, s.Watch(t.Context(), s.key(), watcher("secrets")))
	}
	require.NoError(t, s.remote.Client().Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "one"}}))
	l.wait(t, 1)
	require.Never(t, func() bool { return l.requests.Load() > 1 }, time.Second, 50*time.Millisecond)
}

func behaviorSources(t *testing.T, s *site) {
	account, err := s.remote.AddServiceAccount(t.Context(), s.namespace, "reader",
		rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}})
	require.NoError(t, err)
	s.secret(t, account.Kubeconfig())
	s.cluster(t, true)
	a, b := s.listen(t, "a"), s.listen(t, "b")
	s.start(t)
	s.connected(t)
	a.wait(t, 1)
	b.wait(t, 1)
	require.Equal(t, map[string]string{"stage": "test"}, a.labels.Load())

	require.NoError(t, account.Revoke(t.Context()))
	a.wait(t, 2)
	b.wait(t, 2)
	s.requireNotConnected(t)

	require.NoError(t, account.Reissue(t.Context()))
	s.secret(t, account.Kubeconfig())
	s.connected(t)
	a.wait(t, 3)
}

func behaviorSilence(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	s.secret(t, proxy.Kubeconfig())
	s.cluster(t, true)
	none := s.listen(t, "none")
	waits := s.listen(t, "waits", capi.WatchForProbeFailure(15*time.Second), capi.WatchForProbeFailure(time.Hour))
	s.start(t)
	s.connected(t)
	none.wait(t, 1)
	eventually(t, "the connect", func() bool { return waits.requests.Load() > 0 })
	before := waits.requests.Load()
	last := s.state(t).LastProbeSuccessTime

	proxy.Blackhole(0)
	waits.wait(t, before+1)
	require.GreaterOrEqual(t, time.Since(last), 15*time.Second)
	require.Positive(t, s.state(t).ConsecutiveFailures)
	require.Never(t, func() bool { return waits.requests.Load() > before+1 }, 5*time.Second, 100*time.Millisecond)
	require.Equal(t, int64(1), none.requests.Load())
	s.connected(t) // five failures have not passed
	require.NoError(t, proxy.Heal())
}
