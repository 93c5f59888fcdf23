// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Kubeconfig prints the ConfigMaps of all clusters of kubeconfig files, and
// their changes, until it is interrupted.
//
//	go run ./examples/kubeconfig FILE...
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func main() {
	// Without a logger, nothing says why a cluster is not connected.
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	show := func(e events.Object) { fmt.Println(e.Type, e.Object(), "in", e.Cluster.Name) }
	if err := run(ctrl.SetupSignalHandler(), show, os.Args[1:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, show func(events.Object), files ...string) error {
	// Own: the files are yours, so that plugins which they name may run.
	clusters, err := resolver.Files(resolver.FileOptions{Own: true, ID: resolver.ByContext}, files...)
	if err != nil {
		return err
	}
	cc, err := clustercache.New(clustercache.Options{Resolver: clusters, Discover: true})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cc.Start(ctx) }()

	// Without Watch, a selection delivers what others watch.
	configMaps := events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}
	received, err := cc.ObjectEvents(ctx, configMaps)
	if err != nil {
		return err
	}
	for e := range received { // until ctx ends
		show(e)
	}
	return <-ended
}
