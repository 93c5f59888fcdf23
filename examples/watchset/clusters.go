// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const demoNamespace = "demo"

func configMap(name, team string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: demoNamespace,
		Name:      name,
		Labels:    map[string]string{"team": team},
	}}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: name}}
}

// furnish creates the objects of the story in a cluster.
func furnish(ctx context.Context, c fleet.Cluster) error {
	return fleet.Create(ctx, c.Client(), demoNamespace,
		configMap("red", "paint"), configMap("blue", "paint"), configMap("speed", "road"),
		secret("key"))
}

// asked returns how many WATCH requests of the program have reached a cluster,
// according to its record of requests.
func asked(c fleet.Cluster, resource string) (int, error) {
	requests, err := c.Requests(testenv.UserAgent(userAgent), testenv.Verb("watch"), testenv.Resource(resource),
		func(r testenv.Request) bool { return !r.Unstreamed })
	return len(requests), err
}
