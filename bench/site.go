// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// site is the cluster with a real API server, which starts when the first step
// needs it.
type site struct {
	plan   plan
	env    *testenv.Env
	loaded bool
}

func (s *site) config(ctx context.Context) (*rest.Config, error) {
	if s.env == nil {
		env, err := testenv.Run(ctx, 1)
		if err != nil {
			return nil, err
		}
		s.env = env
	}
	return s.env.Clusters[0].Config(), nil
}

func (s *site) stop() error {
	if s.env == nil {
		return nil
	}
	return s.env.Stop()
}

// on makes a step of what measures a server.
func (s *site) on(do func(context.Context, measure.Cluster, *report) error) func(context.Context, *report) error {
	return func(ctx context.Context, r *report) error {
		config, err := s.config(ctx)
		if err != nil {
			return err
		}
		return do(ctx, clusterOf(config), r)
	}
}

// withPods makes a step of what measures a server that has the pods.
func (s *site) withPods(do func(context.Context, measure.Cluster, *report) error) func(context.Context, *report) error {
	return func(ctx context.Context, r *report) error {
		config, err := s.config(ctx)
		if err != nil {
			return err
		}
		if !s.loaded {
			began := time.Now()
			if err := load(ctx, config, s.plan.pods); err != nil {
				return err
			}
			s.loaded = true
			fmt.Fprintf(os.Stderr, "bench: %d pods written in %s\n", s.plan.pods, time.Since(began).Round(time.Second))
		}
		return do(ctx, clusterOf(config), r)
	}
}

// idle prepares the namespaces of the idle informers.
func (s *site) idle(ctx context.Context, on measure.Cluster, r *report) error {
	for _, x := range s.plan.subjects() {
		if err := makeNamespaces(ctx, subjects.ConfigOf(on), idleNamespaces(x, s.plan.informers)); err != nil {
			return err
		}
	}
	return s.plan.idle(ctx, on, r)
}

// read adds what is read besides Pods as they are: as many Deployments and
// Secrets as there are Pods in the namespace that is read from, and a label by
// which Pods are listed.
func (s *site) read(ctx context.Context, on measure.Cluster, r *report) error {
	c, err := dynamic.NewForConfig(subjects.ConfigOf(on))
	if err != nil {
		return err
	}
	g, writing := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	generator := objects.Generator{}
	for _, k := range []objects.Kind{objects.Deployments, objects.Secrets} {
		for i := range s.plan.pods / objects.Teams {
			g.Go(func() error { return writeObject(writing, c, k, k.New(generator, i*objects.Teams)) })
		}
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, listLabel, listValue)
	for i := 0; i < s.plan.pods; i += listedOf {
		p := generator.Pod(i)
		in := c.Resource(pods.resource).Namespace(p.Namespace)
		g.Go(func() error {
			by := metav1.PatchOptions{FieldManager: "kubectl-label"}
			_, err := in.Patch(writing, p.Name, types.MergePatchType, label, by)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}

	return s.plan.read(ctx, on, r)
}

// sizes reports how large the pods are.
func (s *site) sizes(ctx context.Context, on measure.Cluster, r *report) error {
	whole, stripped, err := sizes(ctx, subjects.ConfigOf(on))
	if err != nil {
		return err
	}
	r.add("pod in JSON", "whole", whole/kib, "KiB", nil)
	r.add("pod in JSON", "without managedFields", stripped/kib, "KiB", nil)

	return nil
}

// steps returns all steps in their order.
func (p plan) steps(s *site) []step {
	all := []step{
		{"idle", s.on(s.idle)},
		{"pods", s.withPods(s.sizes)},
		{"sync", s.withPods(p.sync)},
		{"peak", s.withPods(p.peak)},
		{"read", s.withPods(s.read)},
		{"kinds", s.on(s.kinds)},
		{"objects", s.on(s.objectGrowth)},
		{"small", p.smallSets},
		{"floors", p.floors},
		{"events", p.events},
		{"operator", p.operator},
		{"empty", p.idleClusters},
		{"fleet", p.fleet},
		{"starved", p.starved},
		{"persist", p.persist},
		{"peers", p.peers},
		{"growth", p.growing},
	}
	if p.light {
		return slices.DeleteFunc(all, func(s step) bool { return s.name == "objects" })
	}

	return all
}
