// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
	"github.com/fleetcache/fleetcache/examples/rollout/rolling"
	"github.com/fleetcache/fleetcache/informerpool"
)

const (
	// userAgent is the user agent of the operator, in all clusters.
	userAgent = "fleetcache-rollout"
	// fleetNamespace is where the hub has Modules, Rollouts and Secrets.
	fleetNamespace = "fleet"
	// reconnectEvery speeds up the demonstration: it caps the time between two
	// attempts to reach a cluster that is down (default 30 s).
	reconnectEvery = 2 * time.Second
)

var web = client.ObjectKey{Namespace: fleetNamespace, Name: "web"}

// demo is one run of the demonstration.
type demo struct {
	story.Story

	fleet              *fleet.Fleet
	hub                client.Client
	canary, east, west fleet.Cluster
}

func newDemo(out *story.Printer, f *fleet.Fleet) *demo {
	return &demo{
		Story:  story.Story{Printer: out},
		fleet:  f,
		canary: f.Remotes[0],
		east:   f.Remotes[1],
		west:   f.Remotes[2],
	}
}

// furnish installs the kinds in the hub, registers canary and east there, and
// ends the API server of west.
func (d *demo) furnish(ctx context.Context) error {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for document := range strings.SplitSeq(string(api.CRDs), "\n---\n") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(document), crd); err != nil {
			return err
		}
		crds = append(crds, crd)
	}
	if err := d.fleet.Hub.InstallCRDs(ctx, crds...); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if d.hub, err = client.New(d.fleet.Hub.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	for _, remote := range d.fleet.Remotes {
		if err := fleet.Create(ctx, remote.Client(), appsNamespace); err != nil {
			return err
		}
	}
	for _, remote := range []fleet.Cluster{d.canary, d.east} {
		if err := fleet.Register(ctx, d.hub, key(remote), remote.Kubeconfig()); err != nil {
			return err
		}
	}
	d.Say("the hub has the kinds Module and Rollout, and a Secret with the kubeconfig of canary and of east")
	if err := d.west.Kill(); err != nil { //nolint:contextcheck // a kill waits for nothing
		return err
	}
	d.Say("west is not there yet: it has no Secret, and its API server does not run")
	return nil
}

// newScheme returns the scheme of the hub.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme))
}

// during runs the operator while show runs, and returns when both have ended.
func (d *demo) during(ctx context.Context, log logr.Logger, show func(context.Context) error) error {
	config := d.fleet.Hub.Config()
	config.UserAgent = userAgent
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  d.hub.Scheme(),
		Logger:  log,
		Metrics: metricsserver.Options{BindAddress: "0"}, // no port is opened
	})
	if err != nil {
		return err
	}
	_, err = rolling.Setup(mgr, clustercache.Options{
		UserAgent:     userAgent,
		MaxBackoff:    reconnectEvery,
		RetryInterval: reconnectEvery,
		Informers:     informerpool.Options{MaxBackoff: reconnectEvery},
	}, resolver.HubOptions{Namespace: fleetNamespace, Logger: log})
	if err != nil {
		return err
	}
	var shown time.Time
	err = story.During(ctx, mgr.Start, func(ctx context.Context) error {
		defer func() { shown = time.Now() }()
		return show(ctx)
	})
	d.Say("the operator has stopped within %s", story.Brief(time.Since(shown)))
	return err
}

// until waits until the Rollout's status has the phase, and its clusters are as
// described by overview.
func (d *demo) until(ctx context.Context, phase api.Phase, clusters string) (time.Duration, error) {
	rollout := &api.Rollout{}
	took, err := d.Await(ctx, story.Patience, fmt.Sprintf("the Rollout %s: %s", phase, clusters), func() error {
		if err := d.hub.Get(ctx, web, rollout); err != nil {
			return err
		}
		if got := overview(rollout); rollout.Status.Phase != phase || got != clusters {
			return fmt.Errorf("%s: %s", rollout.Status.Phase, got)
		}
		return nil
	})
	if err != nil && rollout.Name != "" {
		d.showStatus(rollout)
	}
	return took, err
}

// overview returns the state of each cluster of a Rollout in a line.
func overview(rollout *api.Rollout) string {
	var parts []string
	for _, c := range rollout.Status.Clusters {
		parts = append(parts, strings.TrimSpace(strings.Join([]string{c.Name, string(c.State), c.Version}, " ")))
	}
	return strings.Join(parts, ", ")
}

// status prints the Rollout's status, and returns it.
func (d *demo) status(ctx context.Context) (*api.Rollout, error) {
	rollout := &api.Rollout{}
	if err := d.hub.Get(ctx, web, rollout); err != nil {
		return nil, err
	}
	d.showStatus(rollout)
	return rollout, nil
}

func (d *demo) showStatus(rollout *api.Rollout) {
	rows := [][]string{{"CLUSTER", "WAVE", "VERSION", "STATE", "MESSAGE"}}
	for _, c := range rollout.Status.Clusters {
		rows = append(rows, []string{c.Name, c.Wave, c.Version, string(c.State), c.Message})
	}
	d.Table(rows)
	d.Say("Rollout web: %s", strings.TrimSpace(string(rollout.Status.Phase)+" "+rollout.Status.Message))
}

func key(c fleet.Cluster) client.ObjectKey {
	return client.ObjectKey{Namespace: fleetNamespace, Name: c.Name()}
}
