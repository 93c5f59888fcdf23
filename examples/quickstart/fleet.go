// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
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

// cluster is what the story needs of a control plane: a testenv.Cluster or an
// embedded.Cluster.
type cluster interface {
	Name() string
	Config() *rest.Config
	Client() client.Client
	InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error
	Kill() error
	StartAPIServer(ctx context.Context) error
	Requests(matches ...testenv.Match) ([]testenv.Request, error)
}

// road is a way to a cluster that can be cut: a testenv.Proxy or an
// embedded.Cluster.
type road interface {
	Kubeconfig() []byte
	Refuse()
	Heal() error
}

// remote is a cluster that the operator reads.
type remote struct {
	cluster

	key        client.ObjectKey // the operator's key for it
	kubeconfig []byte           // how the operator reaches it
}

// localFleet is a hub and two remote clusters that run on this machine.
type localFleet struct {
	hub        cluster
	east, west *remote
	road       road         // through which only the operator reaches west
	real       *fleet.Fleet // nil if the clusters are in memory

	// reach returns a resolver whose access works in this fleet.
	reach func(resolver.Resolver) (resolver.Resolver, error)
	stop  func() error
	words words
}

// words are the story's words for what it cannot show in the same way on every
// fleet.
type words struct {
	killed  string // how the API server died
	record  string // where requests are counted
	stopped string // what happened to the clusters at the end
	last    string // the last line of the summary; empty if there is none
}

// startFleet starts three control planes. They end with ctx, with stop, and
// with this process, however it ends.
func startFleet(ctx context.Context, out *story.Printer) (*localFleet, error) {
	out.Chapter("A hub and two remote clusters, on this machine")
	f, err := fleet.Start(ctx, out, "east", "west")
	if err != nil {
		return nil, err
	}
	east, west := f.Remotes[0], f.Remotes[1]
	road, err := west.NewProxy()
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return &localFleet{
		hub:   f.Hub,
		east:  newRemote(east, east.Kubeconfig()),
		west:  newRemote(west, road.Kubeconfig()),
		road:  road,
		real:  f,
		reach: func(r resolver.Resolver) (resolver.Resolver, error) { return r, nil },
		stop:  f.Stop,
		words: words{
			killed:  "kill -9: east's API server is dead",
			record:  "audit log",
			stopped: "the clusters are stopped, and their files removed",
		},
	}, nil
}

func (f *localFleet) remotes() []*remote { return []*remote{f.east, f.west} }

func newRemote(c cluster, kubeconfig []byte) *remote {
	return &remote{cluster: c, key: client.ObjectKey{Namespace: fleetNamespace, Name: c.Name()}, kubeconfig: kubeconfig}
}

// furnish creates objects in the remote clusters, and then registers the
// clusters in the hub.
func (f *localFleet) furnish(ctx context.Context) error {
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, r := range f.remotes() {
		wg.Go(func() { errs[i] = r.furnish(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, r := range f.remotes() {
		if err := fleet.Register(ctx, f.hub.Client(), r.key, r.kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) furnish(ctx context.Context) error {
	if err := r.InstallCRDs(ctx, testenv.SimpleCRD(widgetKind.Group, widgetKind.Kind)); err != nil {
		return err
	}
	for _, obj := range []client.Object{
		namespace(demoNamespace), configMap("colors", "door", "red"), configMap("limits", "speed", "50"),
		configMap("greeting", "text", "hello from "+r.Name()), widget("pump", 3), widget("valve", 7),
	} {
		if err := r.Client().Create(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
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
