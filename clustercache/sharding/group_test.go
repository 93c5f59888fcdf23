// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// group is a hub and its replicas.
type group struct {
	t        *testing.T
	config   *rest.Config
	options  sharding.Options
	away     atomic.Bool // the hub does not answer
	replicas []*replica
	clusters []client.ObjectKey
	prepare  func(*sharding.Sharding) // of a replica, before it starts
}

// replica is a process: it can lose its network for good, as one that is killed
// does.
type replica struct {
	*sharding.Sharding
	name   string
	group  *group
	next   http.RoundTripper
	cut    atomic.Bool
	slow   atomic.Int64 // how long answers to writes take
	writes atomic.Int64
	others atomic.Int64 // requests that are neither writes nor watches
	wg     sync.WaitGroup
	err    error
}

var errCut = errors.New("no network")

// RoundTrip is the network between the replica and the hub.
func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.cut.Load() || r.group.away.Load() {
		<-request.Context().Done()
		return nil, errCut
	}
	switch {
	case request.Method != http.MethodGet:
		r.writes.Add(1)
	case request.URL.Query().Get("watch") == "":
		r.others.Add(1)
	}
	response, err := r.next.RoundTrip(request)
	if d := r.slow.Load(); d > 0 && request.Method != http.MethodGet {
		select {
		case <-time.After(time.Duration(d)):
		case <-request.Context().Done():
			if response != nil {
				_ = response.Body.Close()
			}
			return nil, request.Context().Err()
		}
	}
	return response, err
}

func newGroup(t *testing.T, clusters int) *group {
	t.Helper()
	server := fakeapi.New(fakeapi.Options{Identity: "hub"})
	g := &group{
		t:      t,
		config: &rest.Config{Host: "http://hub", Transport: server.Transport()},
		options: sharding.Options{
			Namespace: "default",
			Name:      "operator",
			Slots:     64,
		},
	}
	for i := range clusters {
		g.clusters = append(g.clusters, client.ObjectKey{Namespace: "fleet", Name: "c" + strconv.Itoa(i)})
	}
	return g
}

// start starts n replicas.
func (g *group) start(n int) []*replica {
	g.t.Helper()
	var out []*replica
	for range n {
		r := g.startAs(fmt.Sprintf("operator-%d", len(g.replicas)))
		g.replicas = append(g.replicas, r)
		out = append(out, r)
	}
	return out
}

// startAs starts a replica under a name.
func (g *group) startAs(name string) *replica {
	g.t.Helper()
	r := &replica{name: name, group: g, next: g.config.Transport}
	config := rest.CopyConfig(g.config)
	if config.Transport != nil {
		config.Transport = r
	} else {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			r.next = next
			return r
		})
	}
	options := g.options
	options.Identity = name
	s, err := sharding.New(config, options)
	require.NoError(g.t, err)
	s.SetClusters(g.clusters)
	if g.prepare != nil {
		g.prepare(s)
	}
	r.Sharding = s
	r.wg.Go(func() { r.err = s.Start(context.Background()) })
	return r
}

// stop closes all replicas.
func (g *group) stop() {
	var wg sync.WaitGroup
	for _, r := range g.replicas {
		wg.Go(func() {
			_ = r.Close(context.Background())
			r.wg.Wait()
		})
	}
	wg.Wait()
}

// owned returns how many clusters each replica owns, and how many have no
// owner. It fails if one has two.
func (g *group) owned() (counts []int, without int) {
	g.t.Helper()
	counts = make([]int, len(g.replicas))
	for _, c := range g.clusters {
		owner := -1
		for i, r := range g.replicas {
			if _, ok := r.Lease(c); ok {
				require.Equal(g.t, -1, owner, "%s has two owners", c)
				owner = i
				counts[i]++
			}
		}
		if owner < 0 {
			without++
		}
	}
	return counts, without
}

// waitOwned waits until every cluster has an owner, and returns how long that
// took.
func (g *group) waitOwned(within time.Duration) time.Duration {
	g.t.Helper()
	begin := time.Now()
	for {
		_, without := g.owned()
		took := time.Since(begin)
		if without == 0 {
			return took
		}
		require.Less(g.t, took, within, "%d clusters have no owner", without)
		<-time.After(50 * time.Millisecond)
	}
}
