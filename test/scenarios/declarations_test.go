// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// declGrace is how long watches that are no longer needed are kept in these
// tests.
const declGrace = 300 * time.Millisecond

// declarations holds owners, which are ConfigMaps of the hub and declare what
// they need in remote clusters.
type declarations struct {
	cc        *clustercache.ClusterCache
	namespace string
}

// declaring runs a ClusterCache that releases watches quickly, and that checks
// owners in the hub if there is one.
func declaring(t *testing.T, hub client.Reader, remotes map[string]*rest.Config,
	clusters ...*testenv.Cluster) *declarations {
	t.Helper()
	o := options(t, remotes)
	o.Informers.Linger = time.Hour // declarations do not use it
	o.GC = clustercache.GC{Grace: declGrace, MinInterval: 50 * time.Millisecond, MaxInterval: 200 * time.Millisecond}
	if hub != nil {
		o.GC.InUse = clustercache.OwnerExists(hub)
	}
	cc, _ := run(t, o)
	return &declarations{cc: cc, namespace: namespace(t, clusters...)}
}

// owner returns the Owner for a ConfigMap of the hub.
func (d *declarations) owner(name string) clustercache.Owner {
	return clustercache.Owner{
		GVK:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		ObjectKey: client.ObjectKey{Namespace: d.namespace, Name: name},
	}
}

// target returns the Target for a kind in the test's namespace.
func (d *declarations) target(cluster string, kind client.Object, opts ...client.ListOption) clustercache.Target {
	return clustercache.Target{Cluster: key(cluster), Kind: kind,
		Options: append([]client.ListOption{client.InNamespace(d.namespace)}, opts...)}
}

func (d *declarations) declare(t *testing.T, owner string, targets ...clustercache.Target) clustercache.Declaration {
	t.Helper()
	done, err := d.cc.Declare(t.Context(), d.owner(owner), targets...)
	require.NoError(t, err)
	return done
}

// declareSynced declares targets and waits until all of them can be read.
func (d *declarations) declareSynced(t *testing.T, owner string, targets ...clustercache.Target) {
	t.Helper()
	d.declare(t, owner, targets...)
	require.NoError(t, d.waitForSync(t, owner, time.Minute))
}

func (d *declarations) waitForSync(t *testing.T, owner string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return d.cc.WaitForSync(ctx, d.owner(owner))
}

// uses returns the kinds watched in a cluster, sorted.
func (d *declarations) uses(cluster string) []string {
	kinds := []string{}
	for _, use := range d.cc.Usage().Uses {
		if use.Key.Cluster == key(cluster) {
			kinds = append(kinds, use.Key.GVK.Kind)
		}
	}
	return kinds
}

// informers returns how many informers run in a cluster, including those that
// linger.
func (d *declarations) informers(cluster string) int {
	s, err := d.cc.Cluster(key(cluster)).Status()
	if err != nil {
		return 0
	}
	return s.Informers
}

// follow collects the events of declared objects, in the order in which they
// arrive.
func (d *declarations) follow(t *testing.T) *declFeed {
	t.Helper()
	f := &declFeed{}
	ctx, cancel := context.WithCancel(context.Background())
	received, err := d.cc.ObjectEvents(ctx, events.Selection{})
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for e := range received {
			f.add(e)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

type declFeed struct {
	mu   sync.Mutex
	last map[string]string // the latest value by name
}

func (f *declFeed) add(e events.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]string{}
	}
	o := e.Object()
	if e.New != nil {
		value, _, _ := unstructured.NestedString(e.New.DeepCopyObject().(*unstructured.Unstructured).Object, "data",
			"value")
		f.last[e.Cluster.Name+"/"+o.GetName()] = value
	}
}

func (f *declFeed) value(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[name]
}

// asked returns the paths and queries of the test's requests for a resource in
// the namespace, except requests for a version.
func (d *declarations) asked(t *testing.T, c *testenv.Cluster, resource string) []url.Values {
	t.Helper()
	requests, err := c.Requests(testenv.Resource(resource), testenv.UserAgent(userAgent(t)))
	require.NoError(t, err)
	streams, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	var out []url.Values
	for _, r := range requests {
		if r.Unstreamed || r.Verb == "watch" && !streams {
			continue // counted with the list
		}
		u, err := url.Parse(r.URI)
		require.NoError(t, err)
		q := u.Query()
		if strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=fleetcache") || q.Get("limit") == "1" {
			continue
		}
		q.Set("path", u.Path)
		out = append(out, q)
	}
	return out
}

// objectRequests counts the requests of the test for objects of any kind.
func objectRequests(t *testing.T, clusters ...*testenv.Cluster) int {
	t.Helper()
	n := 0
	for _, c := range clusters {
		requests, err := c.Requests(testenv.UserAgent(userAgent(t)))
		require.NoError(t, err)
		n += len(slices.DeleteFunc(requests,
			func(r testenv.Request) bool { return r.Resource == "" || r.Resource == "namespaces" }))
	}
	return n
}

// watchRequests returns how many watches the test's ClusterCache has opened,
// including streamed lists.
func watchRequests(t *testing.T, clusters ...*testenv.Cluster) int {
	t.Helper()
	n := 0
	for _, c := range clusters {
		requests, err := c.Requests(testenv.UserAgent(userAgent(t)))
		require.NoError(t, err)
		for _, r := range requests {
			if r.Verb == "watch" && !isVersionQuestion(r) {
				n++
			}
		}
	}
	return n
}

// targetErrors returns the parts of an error, by the kind that they name.
func targetErrors(t *testing.T, err error) map[string]*clustercache.TargetError {
	t.Helper()
	require.Error(t, err)
	out := map[string]*clustercache.TargetError{}
	for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
		te, ok := errors.AsType[*clustercache.TargetError](part)
		require.True(t, ok, part)
		out[te.GVK.Kind] = te
	}
	return out
}
