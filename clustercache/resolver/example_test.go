// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// Cluster API's kubeconfig Secrets, for clusters whose control plane exists.
func ExampleClusterAPI() {
	ctx := context.Background()
	// In an operator: client.NewWithWatch(manager.GetConfig(),
	// client.Options{}).
	hub := fake.NewClientBuilder().WithObjects(resolvertest.ClusterAPISecret("fleet", "berlin", "a-token")).Build()

	clusters, err := resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: "fleet"})
	if err != nil {
		panic(err)
	}
	known, err := clusters.Clusters(ctx)
	if err != nil {
		panic(err)
	}
	for _, cluster := range known {
		access, err := clusters.Resolve(ctx, cluster)
		fmt.Println(cluster, access.Config().Host, access.Refs(), err)
	}
	_, err = clusters.Resolve(ctx, resolver.Cluster{Namespace: "fleet", Name: "paris"})
	fmt.Println(strings.ReplaceAll(err.Error(), ": ", ":\n\t"))
	fmt.Println(errors.Is(err, resolver.ErrNoAccess))
	// Output:
	// fleet/berlin https://c.example [Secret fleet/berlin-kubeconfig] <nil>
	// cluster fleet/paris:
	// 	Secret fleet/paris-kubeconfig:
	// 	secret not found with the label cluster.x-k8s.io/cluster-name
	// true
}

// Configurations from the operator's own code; the zero key is the hub.
func ExampleStatic() {
	clusters, err := resolver.Static(map[resolver.Cluster]*rest.Config{
		{}:              {Host: "https://hub.example"},
		{Name: "paris"}: {Host: "https://paris.example", BearerToken: "a-token"},
	})
	if err != nil {
		panic(err)
	}
	access, err := clusters.Resolve(context.Background(), resolver.Cluster{Name: "paris"})
	fmt.Println(access.Config().Host, err)
	// Output: https://paris.example <nil>
}

// The hub from the operator's own configuration, everything else from Cluster
// API.
func ExampleChain() {
	ctx := context.Background()
	own, err := resolver.Static(map[resolver.Cluster]*rest.Config{{}: {Host: "https://hub.example"}})
	if err != nil {
		panic(err)
	}
	hub := fake.NewClientBuilder().WithObjects(resolvertest.ClusterAPISecret("fleet", "berlin", "a-token")).Build()
	fleet, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	if err != nil {
		panic(err)
	}
	clusters := resolver.Chain(own, fleet)
	for _, cluster := range []resolver.Cluster{{}, {Namespace: "fleet", Name: "berlin"}} {
		access, err := clusters.Resolve(ctx, cluster)
		fmt.Println(access.Config().Host, err)
	}
	// Output:
	// https://hub.example <nil>
	// https://c.example <nil>
}

// Only the clusters of one environment: a cluster whose labels change enters or
// leaves.
func ExampleSelect() {
	ctx := context.Background()
	fleet := settable.New()
	for name, env := range map[string]string{"berlin": "prod", "paris": "dev"} {
		access, err := resolver.NewAccess(&rest.Config{Host: "https://" + name + ".example"})
		fleet.Set(resolver.Cluster{Name: name}, access.WithLabels(map[string]string{"env": env}), err)
	}
	fleet.Synced()

	clusters, err := resolver.Select(fleet, labels.SelectorFromSet(labels.Set{"env": "prod"}))
	if err != nil {
		panic(err)
	}
	known, err := clusters.Clusters(ctx)
	fmt.Println(known, err)
	// Output: [/berlin] <nil>
}

// The operator has a kind of its own, whose objects name the Secrets of their
// clusters. A Secret that is written later is noticed by the watch of Notify.
func ExampleReferenced() {
	ctx := context.Background()
	member := resolvertest.UnstructuredObject("fleet.example.com/v1", "Member", "team", "berlin", map[string]any{
		"spec": map[string]any{"kubeconfigRef": map[string]any{"name": "berlin-admin"}},
	})
	hub := fake.NewClientBuilder().WithObjects(member).Build()

	clusters, err := resolver.Referenced(hub, resolver.ReferenceOptions{
		Kind:       schema.GroupVersionKind{Group: "fleet.example.com", Version: "v1", Kind: "Member"},
		SecretName: "spec.kubeconfigRef.name",
	})
	if err != nil {
		panic(err)
	}
	berlin := resolver.Cluster{Namespace: "team", Name: "berlin"}
	_, err = clusters.Resolve(ctx, berlin)
	fmt.Println(err)

	secret := resolvertest.Secret("team", "berlin-admin", nil, resolvertest.TokenData("value", "t"))
	if err := hub.Create(ctx, secret); err != nil {
		panic(err)
	}
	access, err := clusters.Resolve(ctx, berlin)
	fmt.Println(access.Config().Host, err)
	// Output:
	// cluster team/berlin: Secret team/berlin-admin: secret not found
	// https://c.example <nil>
}
