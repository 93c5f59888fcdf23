// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

var (
	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	widgets    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

type entries = map[string]watchset.Entry

// of returns an entry for the ConfigMaps of a cluster with some labels.
func of(cluster, labels string) watchset.Entry {
	return watchset.Entry{
		Cluster:       client.ObjectKey{Name: cluster},
		GVK:           configMaps,
		LabelSelector: labels,
	}
}

// configMap returns a ConfigMap with a label app, if that is given.
func configMap(name string, app ...string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if len(app) > 0 {
		o.Labels = map[string]string{"app": app[0]}
	}
	return o
}

// fleet is a fleet of the clusters a and b, with a ClusterCache that knows only
// the clusters that something makes known.
type fleet struct {
	*clustercachetest.Fleet

	t    *testing.T
	a, b *clustercachetest.Cluster
	cc   *clustercache.ClusterCache
	end  func() // ends the ClusterCache, and waits
}

func newFleet(t *testing.T, objects ...client.Object) *fleet {
	t.Helper()
	f := &fleet{Fleet: clustercachetest.New(t, clustercachetest.Options{}), t: t}
	f.a, f.b = f.Add("a", objects...), f.Add("b", objects...)
	var err error
	f.cc, err = clustercache.New(clustercache.Options{Resolver: f.Resolver()})
	require.NoError(t, err)
	f.end = fleettest.Run(t, f.cc)
	return f
}

// newSet returns a set that ends with the test.
func (f *fleet) newSet(o watchset.Options) *watchset.Set {
	f.t.Helper()
	s, err := watchset.New(f.cc, o)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		require.NoError(f.t, s.Close(context.Background()))
	})
	return s
}

// replace replaces the content of a set, and waits until the fleet is quiet.
func (f *fleet) replace(s *watchset.Set, e entries) watchset.Change {
	f.t.Helper()
	change, err := s.Replace(f.t.Context(), e)
	require.NoError(f.t, err)
	synctest.Wait()
	return change
}

// requests returns how many lists and watches the clusters have received.
func (f *fleet) requests() int {
	n := 0
	for _, c := range []*clustercachetest.Cluster{f.a, f.b} {
		n += len(c.Requests(clustercachetest.Verb("list", "watch")))
	}
	return n
}

// create stores an object in a cluster, or changes the one that is stored.
func (f *fleet) write(c *clustercachetest.Cluster, o client.Object) {
	f.t.Helper()
	err := c.Client().Update(f.t.Context(), o)
	if client.IgnoreNotFound(err) == nil && err != nil {
		err = c.Client().Create(f.t.Context(), o)
	}
	require.NoError(f.t, err)
	synctest.Wait()
}

func (f *fleet) remove(c *clustercachetest.Cluster, o client.Object) {
	f.t.Helper()
	require.NoError(f.t, c.Client().Delete(f.t.Context(), o))
	synctest.Wait()
}

// recorder is a handler that records what it receives.
type recorder struct {
	mu     sync.Mutex // protects the fields below
	events []string
	fail   func(watchset.Event) error
}

func (r *recorder) handle(_ context.Context, e watchset.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, line(e))
	if r.fail != nil {
		return r.fail(e)
	}
	return nil
}

// line describes an event as "entry cluster/name Type marks".
func line(e watchset.Event) string {
	text := fmt.Sprintf("%s %s/%s %s", e.Entry, e.Cluster.Name, e.Object().GetName(), e.Type)
	if e.Initial {
		text += " initial"
	}
	if e.Left {
		text += " left"
	}
	return text
}

// take returns the events since the last call, once everything is quiet.
func (r *recorder) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// statuses records statuses.
type statuses struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (r *statuses) record(s watchset.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, s.Entry+" "+string(s.State))
}

func (r *statuses) take() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.lines, ", ")
	r.lines = nil
	return text
}
