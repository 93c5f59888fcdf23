// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Operator is the program of the rollout example as it is deployed in a hub:
// replicas elect a leader, metrics and health checks are served, and everything
// ends in order. The manifests are in examples/deploy.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
	"github.com/fleetcache/fleetcache/examples/rollout/rolling"
)

const userAgent = "fleetcache-rollout"

// settings are the values of the command line.
type settings struct {
	namespace      string
	leaseNamespace string
	metrics        string
	health         string
}

func main() {
	var s settings
	flag.StringVar(&s.namespace, "namespace", "fleet", "the `namespace` of Modules, Rollouts and Secrets")
	flag.StringVar(&s.leaseNamespace, "lease-namespace", "",
		"the `namespace` of the leader's Lease (default: that of the Pod)")
	flag.StringVar(&s.metrics, "metrics", ":8080", "`address` of the metrics and the debug page")
	flag.StringVar(&s.health, "health", ":8081", "`address` of /healthz and /readyz")
	flag.Parse()
	log := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(log)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), config, s, log)
	}
	if err != nil {
		log.Error(err, "Stopped")
		os.Exit(1)
	}
}

// run runs one replica in the hub until ctx ends. adjust may change the options
// of its manager.
func run(ctx context.Context, hub *rest.Config, s settings, log logr.Logger, adjust ...func(*ctrl.Options)) error {
	hub = rest.CopyConfig(hub)
	hub.UserAgent = userAgent
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return err
	}
	options := ctrl.Options{
		Scheme: scheme,
		Logger: log,
		// A Role in this namespace is enough.
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{s.namespace: {}}},
		Metrics:                 metricsserver.Options{BindAddress: s.metrics},
		HealthProbeBindAddress:  s.health,
		LeaderElection:          true,
		LeaderElectionID:        "rollout.example.com",
		LeaderElectionNamespace: s.leaseNamespace,
		// The process ends when the manager has, so that the next leader need
		// not wait until the Lease expires.
		LeaderElectionReleaseOnCancel: true,
	}
	for _, f := range adjust {
		f(&options)
	}
	mgr, err := ctrl.NewManager(hub, options)
	if err != nil {
		return err
	}
	cc, err := rolling.Setup(mgr, clustercache.Options{UserAgent: userAgent},
		resolver.HubOptions{Namespace: s.namespace, Logger: log})
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddMetricsServerExtraHandler("/debug/clusters", cc.DebugHandler()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
