// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// setup makes a ClusterCache that the manager runs.
type setup func(context.Context, ctrl.Manager, clustercache.Options) (clustercache.ClusterCache, error)

// run is the story with one ClusterCache, in a namespace of its own.
type run struct {
	story.Story

	fleet    *fleet.Fleet
	hub      client.Client
	clusters clustercache.ClusterCache
	name     string // of the namespace
	follows  bool   // a new address in the Secret
}

// tell tells the story twice.
func tell(ctx context.Context, out *story.Printer, f *fleet.Fleet) error {
	crd := testenv.SimpleCRD(clusterv1.GroupVersion.Group, "Cluster")
	crd.Spec.Versions[0].Name = clusterv1.GroupVersion.Version
	if err := f.Hub.InstallCRDs(ctx, crd); err != nil {
		return err
	}
	out.Chapter("Before: Cluster API's ClusterCache")
	if err := tellWith(ctx, out, f, before, "before", false); err != nil {
		return err
	}
	out.Chapter("After: the same controller on fleetcache")

	return tellWith(ctx, out, f, after, "after", true)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme))
}

// tellWith runs the controller with one ClusterCache while it shows what
// happens.
func tellWith(ctx context.Context, out *story.Printer, f *fleet.Fleet, s setup, name string, follows bool) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	r := &run{Story: story.Story{Printer: out}, fleet: f, name: name, follows: follows}
	if r.hub, err = client.New(f.Hub.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(f.Hub.Config(), ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{name: {}}},
	})
	if err != nil {
		return err
	}
	r.clusters, err = s(ctx, mgr, clustercache.Options{
		SecretClient: r.hub,
		Client:       clustercache.ClientOptions{UserAgent: name},
	})
	if err != nil {
		return err
	}
	if err := (&NodeReporter{Hub: r.hub, ClusterCache: r.clusters}).SetupWithManager(mgr, name); err != nil {
		return err
	}

	return story.During(ctx, mgr.Start, r.show)
}

// show creates Clusters, and shows what the controller reports about them.
func (r *run) show(ctx context.Context) error {
	for _, remote := range r.fleet.Remotes {
		if err := r.register(ctx, remote); err != nil {
			return err
		}
	}
	for _, remote := range r.fleet.Remotes {
		if err := r.awaitNodes(ctx, remote, "is connected, and its nodes are counted"); err != nil {
			return err
		}
	}

	east := r.fleet.Remotes[0]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-" + r.name}}
	if err := east.Client().Create(ctx, node); err != nil {
		return err
	}
	if err := r.awaitNodes(ctx, east, "has a new node, and the watch reports it"); err != nil {
		return err
	}

	return r.move(ctx, east)
}

// register creates the Cluster object and the Secret of a remote cluster.
func (r *run) register(ctx context.Context, remote fleet.Cluster) error {
	key := client.ObjectKey{Namespace: r.name, Name: remote.Name()}
	if err := fleet.Register(ctx, r.hub, key, remote.Kubeconfig()); err != nil {
		return err
	}
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := r.hub.Create(ctx, object); err != nil {
		return err
	}
	object.Status.Initialization.InfrastructureProvisioned = new(true)
	return r.hub.Status().Update(ctx, object)
}

// awaitNodes waits until the report of a cluster has the number of its nodes.
func (r *run) awaitNodes(ctx context.Context, remote fleet.Cluster, expected string) error {
	nodes := &corev1.NodeList{}
	if err := remote.Client().List(ctx, nodes); err != nil {
		return err
	}
	took, err := r.Await(ctx, 2*story.Patience, remote.Name()+" "+expected, func() error {
		report := &corev1.ConfigMap{}
		if err := r.hub.Get(ctx, client.ObjectKey{Namespace: r.name, Name: remote.Name()}, report); err != nil {
			return err
		}
		if got := report.Data["nodes"]; got != fmt.Sprint(len(nodes.Items)) {
			return fmt.Errorf("the report says %s nodes, there are %d", got, len(nodes.Items))
		}
		return nil
	})
	if err == nil {
		r.OK("%s %s (%s)", remote.Name(), expected, story.Brief(took))
	}
	return err
}

// move changes the address in a cluster's Secret while the old one still
// answers.
func (r *run) move(ctx context.Context, remote fleet.Cluster) error {
	road, err := r.fleet.NewRoad(remote)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: r.name, Name: remote.Name()}
	if err := r.hub.Update(ctx, fleet.KubeconfigSecret(key, road.Kubeconfig())); err != nil {
		return err
	}
	host := func() string {
		config, err := r.clusters.GetRESTConfig(ctx, key)
		if err != nil {
			return err.Error()
		}
		return config.Host
	}
	if !r.follows {
		if err := story.Sleep(ctx, stays); err != nil {
			return err
		}
		return r.Expect(host() == remote.Config().Host,
			fmt.Sprintf("%s stays at its old address, %s after its Secret has another", key.Name, stays), host())
	}

	took, err := r.Await(ctx, story.Patience, key.Name+" moves with its Secret", func() error {
		if host() != road.Config().Host {
			return fmt.Errorf("requests still go to %s", host())
		}
		return nil
	})
	if err == nil {
		r.OK("%s moves to the address in its Secret while the old one still answers (%s)", key.Name, story.Brief(took))
	}
	return err
}

// stays is how long an address in a Secret must be ignored to count as such.
const stays = 3 * time.Second
