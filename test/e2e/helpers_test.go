// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

const (
	namespace = "default"
	// healed is how soon everything must be correct after a server responds
	// again.
	healed = 5 * time.Second
	// audited is the AuditInterval of tests that lose events.
	audited = 2 * time.Second
	// found is how soon what only an audit detects must be correct: the second
	// audit detects it at the latest, and a busy machine gets three more.
	found = 5*audited + healed
	// patience bounds operations of other processes on a busy machine.
	patience = 60 * time.Second
)

// state holds the version and content of objects: it maps names to UID,
// resourceVersion and hash of the data.
type state map[string]string

func describe(uid, version string, data map[string]string) string {
	h := fnv.New64a()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(h, "%q=%q,", k, data[k])
	}
	return fmt.Sprintf("%s@%s#%x", uid, version, h.Sum64())
}

func stateOf(objects []corev1.ConfigMap) state {
	s := state{}
	for _, o := range objects {
		s[o.Name] = describe(string(o.UID), o.ResourceVersion, o.Data)
	}
	return s
}

// oracle queries a cluster with client-go, bypassing everything that is tested.
type oracle struct{ *kubernetes.Clientset }

func newOracle(t testing.TB, config *rest.Config) oracle {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	config.UserAgent = "oracle"
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	set, err := kubernetes.NewForConfigAndClient(config, httpClient)
	require.NoError(t, err)
	return oracle{set}
}

// quorum lists the objects that etcd holds.
func (o oracle) quorum(ctx context.Context) (state, error) {
	list, err := o.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return stateOf(list.Items), nil
}

func (o oracle) put(t *testing.T, name, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}
	_, err := o.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
	if err != nil {
		_, err = o.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

func (o oracle) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, o.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// cluster is the key of a subject's only cluster.
var cluster = client.ObjectKey{Namespace: "fleet", Name: "one"}

// subject is a ClusterCache that watches ConfigMaps in clusters, together with
// its accumulated events.
type subject struct {
	*clustercache.ClusterCache

	t *testing.T

	// mu protects the fields below.
	mu       sync.Mutex
	known    map[client.ObjectKey]state
	deleted  map[client.ObjectKey]map[string]int // by name
	problems []string
}

// options returns options for fast detection and recovery.
func options(r resolver.Resolver) clustercache.Options {
	return clustercache.Options{
		Resolver:      r,
		UserAgent:     "planes",
		ProbeInterval: time.Second,
		ProbeTimeout:  2 * time.Second,
		MaxBackoff:    time.Second,
		RetryInterval: time.Second,
		QPS:           -1,
		Informers: informerpool.Options{
			MaxBackoff:    time.Second,
			AuditInterval: audited,
		},
	}
}

// starting starts a subject that does not watch anything yet.
func starting(t *testing.T, configs map[client.ObjectKey]*rest.Config, change func(*clustercache.Options)) *subject {
	t.Helper()
	o := options(resolver.Func(func(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
		return resolver.NewAccess(configs[key])
	}))
	o.Logger = logr.FromSlogHandler(slog.NewTextHandler(t.Output(), nil))
	if change != nil {
		change(&o)
	}
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	s := &subject{ClusterCache: cc, t: t, known: map[client.ObjectKey]state{},
		deleted: map[client.ObjectKey]map[string]int{}}
	s.run(func(ctx context.Context) {
		if err := cc.Start(ctx); err != nil {
			t.Errorf("the cache ended: %v", err)
		}
	})
	return s
}

// run runs a function until the test ends.
func (s *subject) run(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	s.t.Cleanup(func() { cancel(); running.Wait() })
}

// watching starts a subject and waits until all its clusters have synced.
func watching(t *testing.T, configs map[client.ObjectKey]*rest.Config, change func(*clustercache.Options)) *subject {
	t.Helper()
	s := starting(t, configs, change)
	received, err := s.ObjectEvents(t.Context(),
		events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}})
	require.NoError(t, err)
	s.run(func(context.Context) {
		for e := range received {
			s.take(e)
		}
	})
	for key := range configs {
		w, err := s.Cluster(key).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(namespace))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	return s
}

// take processes an event. An added object must be new, and an updated one must
// exist. A delete may concern an object that only a read has shown: it was read
// live, or was created and deleted while the handler was busy.
func (s *subject) take(e events.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[e.Cluster] == nil {
		s.known[e.Cluster], s.deleted[e.Cluster] = state{}, map[string]int{}
	}
	known, name := s.known[e.Cluster], e.Object().GetName()
	if _, there := known[name]; there == (e.Type == informerpool.Added) && (there || e.Type != informerpool.Deleted) {
		s.problems = append(s.problems,
			fmt.Sprintf("%s of %s in %s, which was there: %t", e.Type, name, e.Cluster, there))
	}
	if e.Type == informerpool.Deleted {
		delete(known, name)
		s.deleted[e.Cluster][name]++
		return
	}
	cm := &corev1.ConfigMap{}
	if err := e.New.Into(cm); err != nil {
		s.problems = append(s.problems, fmt.Sprintf("decode %s: %v", name, err))
	}
	known[name] = describe(string(cm.UID), cm.ResourceVersion, cm.Data)
}

// told returns the accumulated events of a cluster, how many times each name
// was deleted, and the inconsistencies in the events of all clusters.
func (s *subject) told(key client.ObjectKey) (state, map[string]int, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.known[key]), maps.Clone(s.deleted[key]), slices.Clone(s.problems)
}

// cached returns the cache's contents for a cluster.
func (s *subject) cached(key client.ObjectKey) (state, error) {
	list := &corev1.ConfigMapList{}
	if err := s.Cluster(key).Reader().List(context.Background(), list, client.InNamespace(namespace),
		clustercache.CacheOnly); err != nil {
		return nil, err
	}
	return stateOf(list.Items), nil
}

// difference describes how a cluster's cache and events differ from a quorum
// list. It is empty if they do not.
func (s *subject) difference(key client.ObjectKey, o oracle) string {
	want, err := o.quorum(s.t.Context())
	if err != nil {
		return "quorum list: " + err.Error()
	}
	cached, err := s.cached(key)
	if err != nil {
		return "cache: " + err.Error()
	}
	if d := differ(want, cached); d != "" {
		return "cache: " + d
	}
	told, _, _ := s.told(key)
	if d := differ(want, told); d != "" {
		return "events: " + d
	}
	return ""
}

func differ(want, got state) string {
	for name, w := range want {
		if g := got[name]; g != w {
			return fmt.Sprintf("%s is %q, and ought to be %q", name, g, w)
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			return fmt.Sprintf("%s is %q, and ought not to be", name, g)
		}
	}
	return ""
}

// equals requires that within the given time cache and events equal a quorum
// list, and that the events were consistent. It returns how long that took.
func (s *subject) equals(key client.ObjectKey, o oracle, within time.Duration) time.Duration {
	s.t.Helper()
	began := time.Now()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var last string
	for {
		if last = s.difference(key, o); last == "" {
			break
		}
		if time.Since(began) > within {
			status, _ := s.Cluster(key).Status()
			require.FailNow(s.t, "still different", "after %s: %s; status %+v", within, last, status)
		}
		<-look.C
	}
	_, _, problems := s.told(key)
	require.Empty(s.t, problems)
	return time.Since(began).Round(time.Millisecond)
}

// ready waits until a cluster is connected.
func (s *subject) ready(key client.ObjectKey) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		status, err := s.Cluster(key).Status()
		return err == nil && status.Connected
	}, patience, 10*time.Millisecond, "connected again")
}

// deletes returns how many deletes were delivered for each name.
func (s *subject) deletes(key client.ObjectKey) map[string]int {
	_, deleted, _ := s.told(key)
	return deleted
}
