// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const (
	fleetNamespace = "fleet" // in the hub, with the kubeconfigs
	demoNamespace  = "demo"  // in the remotes, with the objects
)

var (
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	widgetKind    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

// remote is a cluster that the operator reads.
type remote struct {
	fleet.Cluster

	key        client.ObjectKey // the operator's key for it
	kubeconfig []byte           // how the operator reaches it
}

// localFleet is a hub and two remote clusters that run on this machine.
type localFleet struct {
	*fleet.Fleet

	east, west *remote
	road       *fleet.Road // by which only the operator reaches west
}

// startFleet starts three control planes, which end with Stop.
func startFleet(ctx context.Context, local fleet.Local, out *story.Printer) (*localFleet, error) {
	f, err := local.Start(ctx, out, "A hub and two remote clusters", "hub", "east", "west")
	if err != nil {
		return nil, err
	}
	east, west := f.Remotes[0], f.Remotes[1]
	road, err := f.NewRoad(west)
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return &localFleet{
		Fleet: f,
		east:  newRemote(east, east.Kubeconfig()),
		west:  newRemote(west, road.Kubeconfig()),
		road:  road,
	}, nil
}

// killed returns how an API server has died.
func (f *localFleet) killed() string {
	if f.Embedded {
		return "as after kill -9: east's connections are reset, and new ones refused"
	}
	return "kill -9: east's API server is dead"
}

func (f *localFleet) remotes() []*remote { return []*remote{f.east, f.west} }

func newRemote(c fleet.Cluster, kubeconfig []byte) *remote {
	return &remote{Cluster: c, key: client.ObjectKey{Namespace: fleetNamespace, Name: c.Name()}, kubeconfig: kubeconfig}
}

// furnish creates objects in the remote clusters, and then registers the
// clusters in the hub.
func (f *localFleet) furnish(ctx context.Context) error {
	var g errgroup.Group
	for _, r := range f.remotes() {
		g.Go(func() error { return r.furnish(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, r := range f.remotes() {
		if err := fleet.Register(ctx, f.Hub.Client(), r.key, r.kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) furnish(ctx context.Context) error {
	if err := r.InstallCRDs(ctx, testenv.SimpleCRD(widgetKind.Group, widgetKind.Kind)); err != nil {
		return err
	}
	return fleet.Create(ctx, r.Client(), demoNamespace,
		configMap("colors", "door", "red"), configMap("limits", "speed", "50"),
		configMap("greeting", "text", "hello from "+r.Name()), widget("pump", 3), widget("valve", 7))
}

func configMap(name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: name}, Data: map[string]string{key: value},
	}
}

func widget(name string, size int64) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	u.SetGroupVersionKind(widgetKind)
	u.SetNamespace(demoNamespace)
	u.SetName(name)
	return u
}

// ask returns the request with which the reconciler looks at an object of the
// remote cluster.
func (r *remote) ask(kind schema.GroupVersionKind, name string) request {
	return request{cluster: r.key, kind: kind, object: client.ObjectKey{Namespace: demoNamespace, Name: name}}
}

// traffic counts the operator's requests to an API server, according to the
// server's record of them.
type traffic struct{ lists, watches int }

func (t traffic) String() string { return fmt.Sprintf("%d lists and %d watches", t.lists, t.watches) }

// traffic counts the lists and watches of a resource that have reached the
// remote cluster. Servers since 1.34 send a list as the beginning of a watch;
// that counts as both. Before a watch is resumed, the server's current version
// is read by a list that selects nothing; that does not count as a list.
func (r *remote) traffic(resources ...string) (traffic, error) {
	var t traffic
	for _, resource := range resources {
		requests, err := r.Requests(testenv.UserAgent(userAgent), testenv.Resource(resource),
			testenv.Verb("list", "watch"))
		if err != nil {
			return t, err
		}
		for _, request := range requests {
			u, err := url.Parse(request.URI)
			if err != nil {
				return t, err
			}
			if request.Unstreamed || u.Query().Has("fieldSelector") || u.Query().Get("limit") == "1" {
				continue
			}
			if request.Verb == "list" || u.Query().Get("sendInitialEvents") == "true" {
				t.lists++
			}
			if request.Verb == "watch" {
				t.watches++
			}
		}
	}
	return t, nil
}
