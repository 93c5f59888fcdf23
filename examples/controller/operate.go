// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// operate runs the operator on contexts of a kubeconfig file until ctx ends. It
// prints each reconcile.
func operate(
	ctx context.Context, contexts fleet.Contexts, stdin io.Reader, out *story.Printer, log logr.Logger,
) error {
	configs, err := contexts.Load()
	if err != nil {
		return err
	}
	access, err := resolver.Static(configs)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(configs[contexts.First()], ctrl.Options{
		Logger:  log,
		Metrics: metricsserver.Options{BindAddress: "0"}, // no port is opened
	})
	if err != nil {
		return err
	}
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{
		Resolver: access,
		Discover: true,
	})
	if err != nil {
		return err
	}
	o, err := newOperator(mgr, cc, func(ctx context.Context, site client.ObjectKey) (end func(error)) {
		cluster, _ := controller.ClusterFromContext(ctx)
		out.Say("%s: reconciling %s", cluster.Name, site)
		return func(err error) {
			if err != nil {
				out.Say("%s: %s ended with: %v", cluster.Name, site, err)
				return
			}
			out.Say("%s: %s is done", cluster.Name, site)
		}
	})
	if err != nil {
		return err
	}

	go o.follow(stdin, out) // its last read ends with the process
	context.AfterFunc(ctx, func() { out.Say("stopping: nothing begins any more") })
	err = o.run(ctx)
	if errors.Is(err, errCanceled) {
		out.Say("%v after %s", err, drainTimeout)
		return nil
	}
	return err
}

// follow reads triggers: lines "all", or "CLUSTER NAMESPACE NAME" for one site.
func (o *operator) follow(r io.Reader, out *story.Printer) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if err := o.trigger(strings.Fields(lines.Text())); err != nil {
			out.Say("%v", err)
		}
	}
}

func (o *operator) trigger(words []string) error {
	switch {
	case len(words) == 1 && words[0] == "all":
		o.sites.TriggerAll()
	case len(words) == 3:
		o.sites.Trigger(controller.Request{
			Cluster:   client.ObjectKey{Name: words[0]},
			GVK:       siteKind,
			ObjectKey: client.ObjectKey{Namespace: words[1], Name: words[2]},
		})
	default:
		return fmt.Errorf("neither \"all\" nor \"CLUSTER NAMESPACE NAME\": %q", words)
	}
	return nil
}
