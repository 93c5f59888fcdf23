// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// A cluster is engaged, watched and read. The API server here is a real one.
func Example() {
	if err := readOneCluster(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// Connected fleet/east
	// settings: blue
	// from the cache: true
}

func readOneCluster() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	env, err := testenv.Run(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { _ = env.Stop() }()
	east := client.ObjectKey{Namespace: "fleet", Name: "east"}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
		Data: map[string]string{"color": "blue"}}
	if err := env.Clusters[0].Client().Create(ctx, settings); err != nil {
		return err
	}

	r, err := resolver.Static(map[client.ObjectKey]*rest.Config{east: env.Clusters[0].Config()})
	if err != nil {
		return err
	}
	cc, err := clustercache.New(clustercache.Options{Resolver: r})
	if err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- cc.Start(ctx) }() // or mgr.Add(cc)
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()

	w, err := cc.Watch(ctx, east, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	defer w.Release()
	for e := range cc.ClusterEvents(ctx) {
		if e.Type == clustercache.Connected {
			fmt.Println(e.Type, e.Cluster)
			break
		}
	}
	if err := w.WaitForSync(ctx); err != nil {
		return err
	}
	var origin clustercache.Origin
	if err := cc.Reader(east).Get(ctx, client.ObjectKeyFromObject(settings), settings, &origin); err != nil {
		return err
	}
	fmt.Println("settings:", settings.Data["color"])
	fmt.Println("from the cache:", origin.Cached)
	return nil
}
