// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet gives the example programs clusters: control planes that they
// start by themselves, as processes or in memory, with kubeconfig Secrets in the
// first one, or contexts of the user's own kubeconfig file.
package fleet

import (
	"context"
	"errors"
	"flag"
	"os"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// Cluster is a control plane without nodes. Its methods have the meaning of
// those of a testenv.Cluster, whose processes or whose memory it may be.
type Cluster interface {
	Name() string
	Config() *rest.Config
	Kubeconfig() []byte
	Client() client.Client
	InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error
	AddUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (User, error)
	Kill() error
	StopAPIServer(ctx context.Context) error
	StartAPIServer(ctx context.Context) error
	Requests(matches ...testenv.Match) ([]testenv.Request, error)

	// OpenWatches returns how many watches of a resource, of all users, the API
	// server is serving.
	OpenWatches(ctx context.Context, resource string) (int, error)
}

// User is a user of a cluster: a testenv.User, or one that the cluster has in
// memory.
type User interface {
	Config() *rest.Config
	Kubeconfig() []byte
	Grant(ctx context.Context, rules ...rbacv1.PolicyRule) error
}

// Local says how the clusters run that a program starts by itself. The zero
// value stands for processes.
type Local struct {
	// Embedded makes them API servers in the memory of this process.
	Embedded bool
}

// Flags defines -embedded.
func (l *Local) Flags(flags *flag.FlagSet) {
	flags.BoolVar(&l.Embedded, "embedded", false,
		"use API servers in memory: builds and starts nothing, and takes seconds")
}

// Fleet is a set of clusters that run on this machine.
type Fleet struct {
	// Hub is the first cluster, and Remotes are the others. Where there is no
	// hub, all are alike.
	Hub     Cluster
	Remotes []Cluster
	// Embedded reports that they are in the memory of this process.
	Embedded bool

	roads []*Road
	dir   string // of temporary files; empty without any
	stop  func() error
}

// Start starts a cluster for each of the names, of which there must be one at
// least. It prints a chapter with the title, the progress, and what the clusters
// cannot show, and blocks until all are ready. The first start of processes on a
// machine builds the servers, which takes minutes. The clusters end with ctx,
// with Stop, and with this process, however it ends; those in memory do not end
// with ctx.
func (l Local) Start(ctx context.Context, out *story.Printer, title string, names ...string) (*Fleet, error) {
	if l.Embedded {
		return startEmbedded(out, title, names)
	}
	out.Chapter(title + ", on this machine")
	done := out.Working("starting " + number(len(names)) + " control planes, an etcd and a kube-apiserver each")
	env, err := testenv.Run(ctx, len(names), testenv.WithNames(names...), testenv.WithLog(out.Log))
	done()
	if err != nil {
		return nil, err
	}
	f := Of(env.Clusters...)
	f.stop = func() error {
		err := env.Stop()
		out.Say("the clusters are stopped, and their files removed")
		return err
	}
	return f, nil
}

// startEmbedded starts API servers in memory, and prints what cannot be shown
// with them.
func startEmbedded(out *story.Printer, title string, names []string) (*Fleet, error) {
	out.Chapter(title + ", in the memory of this process")
	clusters, err := newEmbedded(names)
	if err != nil {
		return nil, err
	}
	for _, line := range []string{
		number(len(names)) + " API servers in memory serve at ports of this machine; nothing was built or started",
		"what they do not show: etcd, processes and files; admission, defaults and schemas; controllers and nodes;",
		"and how long a real API server takes to answer or to start. One that is killed resets its connections and",
		"refuses new ones, and has forgotten its history when it is back. The same with real ones: without -embedded",
	} {
		out.Say("%s", line)
	}
	f := &Fleet{Hub: clusters[0], Embedded: true}
	for _, c := range clusters[1:] {
		f.Remotes = append(f.Remotes, c)
	}
	f.stop = func() error {
		err := stopEmbedded(clusters)
		out.Say("the clusters are gone: they were in memory alone")
		return err
	}
	return f, nil
}

// Of returns the fleet of clusters that run already, of which the first is the
// hub. Its Stop ends none of them.
func Of(clusters ...*testenv.Cluster) *Fleet {
	f := &Fleet{Hub: process{clusters[0]}, stop: func() error { return nil }}
	for _, c := range clusters[1:] {
		f.Remotes = append(f.Remotes, process{c})
	}
	return f
}

// Clusters returns the hub and the remote clusters.
func (f *Fleet) Clusters() []Cluster { return append([]Cluster{f.Hub}, f.Remotes...) }

// Record returns what the record of requests is called that Requests of the
// clusters reads.
func (f *Fleet) Record() string {
	if f.Embedded {
		return "request log"
	}
	return "audit log"
}

// Stop ends all clusters at once, prints that, and returns when their processes
// and files are gone, and when those in memory serve no request any more. Roads
// to them are closed, and files of WriteFile are removed.
func (f *Fleet) Stop() error {
	var errs []error
	for _, r := range f.roads {
		errs = append(errs, r.Close())
	}
	f.roads = nil
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(append(errs, f.stop())...)
}

func number(n int) string {
	words := [...]string{"no", "one", "two", "three", "four", "five", "six"}
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}
