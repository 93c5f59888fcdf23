// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func furnish(ctx context.Context, c *testenv.Cluster) error {
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: demoNamespace}},
		configMap("red", "paint"), configMap("blue", "paint"), configMap("speed", "road"),
		secret("key"),
	} {
		if err := c.Client().Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// asked returns how many WATCH requests of the program have reached a cluster,
// according to its audit log.
func asked(c *testenv.Cluster, resource string) (int, error) {
	requests, err := c.Requests(testenv.UserAgent(userAgent), testenv.Verb("watch"), testenv.Resource(resource),
		func(r testenv.Request) bool { return !r.Unstreamed })
	return len(requests), err
}

// open returns how many WATCH requests of all programs for a resource an API
// server is serving, according to its metrics.
func open(ctx context.Context, c *testenv.Cluster, resource string) (n int, err error) {
	config := c.Config()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer web.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := web.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of %s: %s", c.Name(), response.Status)
	}

	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(series, "apiserver_longrunning_requests{") ||
			!strings.Contains(series, `resource="`+resource+`"`) || !strings.Contains(series, `verb="WATCH"`) {
			continue
		}
		count, err := strconv.Atoi(value)
		if err != nil {
			return 0, err
		}
		n += count
	}
	return n, lines.Err()
}
