// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet gives the example programs clusters: a hub and remote clusters
// that run on this machine, with kubeconfig Secrets in the hub, or contexts of
// the user's own kubeconfig file.
package fleet

import (
	"context"
	"strconv"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// Fleet is a hub and remote clusters that run on this machine: control planes
// without nodes.
type Fleet struct {
	Hub     *testenv.Cluster
	Remotes []*testenv.Cluster

	stop func() error
}

// Start starts a hub, called "hub", and a remote cluster for each of the names.
// It prints the progress, and blocks until all are ready. The first start on a
// machine builds the servers, which takes minutes. The clusters end with ctx,
// with Stop, and with this process, however it ends.
func Start(ctx context.Context, out *story.Printer, remotes ...string) (*Fleet, error) {
	env, err := StartClusters(ctx, out, append([]string{"hub"}, remotes...)...)
	if err != nil {
		return nil, err
	}
	f := Of(env.Clusters...)
	f.stop = env.Stop
	return f, nil
}

// StartClusters is Start without a hub.
func StartClusters(ctx context.Context, out *story.Printer, names ...string) (*testenv.Env, error) {
	done := out.Working("starting " + number(len(names)) + " control planes, an etcd and a kube-apiserver each")
	defer done()

	return testenv.Run(ctx, len(names), testenv.WithNames(names...), testenv.WithLog(out.Log))
}

// Of returns the fleet of clusters that run already, of which the first is the
// hub. Its Stop does nothing.
func Of(clusters ...*testenv.Cluster) *Fleet {
	return &Fleet{Hub: clusters[0], Remotes: clusters[1:], stop: func() error { return nil }}
}

// Clusters returns the hub and the remote clusters.
func (f *Fleet) Clusters() []*testenv.Cluster { return append([]*testenv.Cluster{f.Hub}, f.Remotes...) }

// Stop ends all clusters at once, and returns when their processes and files
// are gone.
func (f *Fleet) Stop() error { return f.stop() }

func number(n int) string {
	words := [...]string{"no", "one", "two", "three", "four", "five", "six"}
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}
