// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"fmt"
	"maps"
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
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// site is the environment of one case: a hub with Secrets by Cluster API's
// convention, a remote cluster, and a namespace in both whose name is also the
// user agent, so that each case sees its own requests. The hub also serves as a
// second remote cluster.
type site struct {
	hub, remote *testenv.Cluster
	hubClient   client.WithWatch
	name        string
}

func newSite(t *testing.T, hub, remote *testenv.Cluster, number int) *site {
	t.Helper()
	s := &site{hub: hub, remote: remote, name: fmt.Sprintf("case-%02d", number)}
	config := hub.Config()
	config.UserAgent = "hub-" + s.name
	var err error
	s.hubClient, err = client.NewWithWatch(config, client.Options{})
	require.NoError(t, err)
	for _, c := range []*testenv.Cluster{hub, remote} {
		require.NoError(t, c.Client().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	}
	return s
}

func (s *site) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.name, Name: name}
}

// options returns options with short intervals and a resolver for the Secrets
// of the case's namespace.
func (s *site) options(t *testing.T, change ...func(*resolver.HubOptions)) clustercache.Options {
	t.Helper()
	o := resolver.HubOptions{Namespace: s.name, Grace: time.Second}
	for _, f := range change {
		f(&o)
	}
	r, err := resolver.ClusterAPI(s.hubClient, o)
	require.NoError(t, err)
	options := fleettest.Quick(r)
	options.UserAgent, options.Grace = s.name, 2*time.Second
	return options
}

// store creates or updates the Secret of a cluster.
func (s *site) store(t *testing.T, name string, kubeconfig []byte, labels ...map[string]string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.name, Name: name + "-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": name},
		},
		Data: map[string][]byte{"value": kubeconfig},
	}
	for _, more := range labels {
		maps.Copy(secret.Labels, more)
	}
	err := s.hubClient.Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.hubClient.Update(t.Context(), secret)
	}
	require.NoError(t, err)
}

func (s *site) unstore(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.hubClient.Delete(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name + "-kubeconfig"}}))
}

func (s *site) create(t *testing.T, c *testenv.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Data: map[string]string{"in": c.Name()},
		}))
	}
}

func (s *site) watch(t *testing.T, cc *clustercache.ClusterCache, name string) *clustercache.Watch {
	t.Helper()
	w, err := cc.Cluster(s.key(name)).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(s.name))
	require.NoError(t, err)
	return w
}

// get reads the ConfigMap "one" of a cluster.
func (s *site) get(t *testing.T, cc *clustercache.ClusterCache, name string, opts ...client.GetOption) error {
	t.Helper()
	return cc.Cluster(s.key(name)).Reader().Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "one"},
		&corev1.ConfigMap{}, opts...)
}

// status waits until the status of a cluster is as wanted.
func (s *site) status(t *testing.T, cc *clustercache.ClusterCache, name string,
	want func(status.Cluster) bool) status.Cluster {
	t.Helper()
	var last status.Cluster
	require.Eventually(t, func() bool {
		var err error
		last, err = cc.Cluster(s.key(name)).Status()
		return err == nil && want(last)
	}, time.Minute, 10*time.Millisecond)
	return last
}

func (s *site) ready(t *testing.T, cc *clustercache.ClusterCache, name string) status.Cluster {
	t.Helper()
	return s.status(t, cc, name, func(now status.Cluster) bool { return now.Phase == status.PhaseReady })
}

// requests returns the requests that reached a cluster from the case's
// ClusterCache.
func (s *site) requests(t *testing.T, c *testenv.Cluster, matches ...testenv.Match) []testenv.Request {
	t.Helper()
	requests, err := c.Requests(append(matches, testenv.UserAgent(s.name))...)
	require.NoError(t, err)
	out := requests[:0]
	for _, r := range requests {
		if r.UserAgent == s.name { // the resolver's user agent ends in it
			out = append(out, r)
		}
	}
	return out
}

// lists returns how often ConfigMaps were listed in a cluster.
func (s *site) lists(t *testing.T, c *testenv.Cluster) (n int) {
	t.Helper()
	for _, r := range s.requests(t, c, testenv.Resource("configmaps")) {
		if r.Verb == "list" && !fleettest.IsVersionQuestion(r) || r.Verb == "watch" && fleettest.IsStreamedList(r) {
			n++
		}
	}
	return n
}

// connected is the usual setting: the cluster "a" is the remote, reached with
// config, watched and synced, and events for the ConfigMaps "one" and "two"
// were delivered.
type connected struct {
	*site

	cc       *clustercache.ClusterCache
	w        *clustercache.Watch
	clusters *fleettest.ClusterLog
	objects  *fleettest.ObjectLog
}

func (s *site) connected(t *testing.T, config *rest.Config) connected {
	t.Helper()
	s.create(t, s.remote, "one", "two")
	s.store(t, "a", testenv.Kubeconfig(config))
	cc := fleettest.Start(t, s.options(t))
	c := connected{site: s, cc: cc, clusters: fleettest.Follow(t, cc),
		objects: fleettest.FollowObjects(t, cc, events.Selection{}), w: s.watch(t, cc, "a")}
	require.NoError(t, c.w.WaitForSync(t.Context()))
	c.objects.WaitAll("one", "two")
	c.clusters.Wait(s.key("a"), events.Connected)
	return c
}

// told creates a ConfigMap, and returns the events that handlers received
// before the event of that ConfigMap.
func (c connected) told(t *testing.T, name string) []events.Object {
	t.Helper()
	c.create(t, c.remote, name)
	_, before := c.objects.Wait(fleettest.Named(c.key("a"), name))
	kept := before[:0]
	for _, e := range before {
		if e.Object().GetName() != "kube-root-ca.crt" { // created by the control plane at any time
			kept = append(kept, e)
		}
	}
	return kept
}

// quiet fails if the cluster was disconnected since the last event that the
// case waited for.
func (c connected) quiet(t *testing.T) {
	t.Helper()
	for len(c.clusters.Events) > 0 {
		e := <-c.clusters.Events
		require.NotContains(t, []events.ClusterType{events.Disconnected, events.Removed}, e.Type)
	}
}
