// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/test/conformance"
)

// fakeBed tests behaviors on a fake cluster.
type fakeBed struct {
	fleet   *clustercachetest.Fleet
	cluster *fakeCluster
}

func newFakeBed(t *testing.T) *fakeBed {
	fleet := clustercachetest.New(t, clustercachetest.Options{Scheme: conformance.Scheme})
	return &fakeBed{fleet: fleet, cluster: &fakeCluster{Cluster: fleet.Add("fleet/fake")}}
}

func (b *fakeBed) Cluster() conformance.Cluster { return b.cluster }
func (b *fakeBed) Resolver() resolver.Resolver  { return b.fleet.Resolver() }

type fakeCluster struct {
	*clustercachetest.Cluster

	allow func()
}

func (c *fakeCluster) Admin() client.Client { return c.Client() }
func (c *fakeCluster) Replace()             { c.NewEpoch() }

func (c *fakeCluster) Forbid(resource string) {
	c.allow = c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Resource(resource))
}

func (c *fakeCluster) Limit(resource, name string) {
	c.allow = c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Resource(
		resource), func(r clustercachetest.Request) bool {
		return r.Name != name && !strings.Contains(r.Query, "fieldSelector=metadata.name%3D"+name)
	})
}

func (c *fakeCluster) Allow() { c.allow() }

func (c *fakeCluster) Snapshot() func() {
	s := c.Cluster.Snapshot()
	return func() { c.Rollback(s) }
}

func (c *fakeCluster) Lists(resource string) int {
	return len(c.Requests(clustercachetest.Resource(resource), func(r clustercachetest.Request) bool {
		return r.Verb == "list" || (r.Initial && !versionQuestion(r))
	}))
}

func (c *fakeCluster) Streams() bool { return true }

func (c *fakeCluster) Watches(resource string) int {
	return len(c.Requests(clustercachetest.Resource(resource), clustercachetest.Verb(
		"watch"), func(r clustercachetest.Request) bool {
		return !r.Initial
	}))
}

// versionQuestion reports whether a request is a streamed list of nothing,
// which only reads the version of the history.
func versionQuestion(r clustercachetest.Request) bool {
	return strings.Contains(r.Query, "fieldSelector=metadata.name%3Dfleetcache-history") || r.Query == "limit=1"
}

func TestFakesBehaveAsTheSuiteSays(t *testing.T) {
	for _, b := range conformance.Behaviours() {
		t.Run(b.Name, func(t *testing.T) { b.Run(t, newFakeBed(t)) })
	}
}

func TestFakesBehaveAsTheSuiteSaysInABubble(t *testing.T) {
	for _, b := range conformance.Behaviours() {
		t.Run(b.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { b.Run(t, newFakeBed(t)) })
		})
	}
}
