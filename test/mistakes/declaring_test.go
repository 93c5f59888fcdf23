// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// declaring declares a target for an owner.
func declaring(owner clustercache.Owner, target clustercache.Target) func(b *beginner) error {
	return func(b *beginner) error {
		_, err := b.cc.Declare(b.Context(), owner, target)
		return err
	}
}

var (
	owner = fleettest.Owner("o")
	pods  = clustercache.Target{Cluster: key, Kind: &corev1.Pod{}}
)

var ofDeclaring = map[string]mistake{
	"owner without a kind": {
		says("owner.GVK: kind and version are required"),
		declaring(clustercache.Owner{ObjectKey: owner.ObjectKey}, pods),
	},
	"owner without a name": {
		says("owner.Name: required"),
		declaring(clustercache.Owner{GVK: owner.GVK}, pods),
	},
	"target without a kind": {
		says("fleet/a", owner.String(), "Targets[0].Kind", "obj is nil"),
		declaring(owner, clustercache.Target{Cluster: key}),
	},
	"target with a cluster and a selector of clusters": {
		says(owner.String(), "Targets[0].ClusterSelector"),
		declaring(owner, clustercache.Target{
			Cluster:         key,
			ClusterSelector: labels.Everything(),
			Kind:            &corev1.Pod{},
		}),
	},
	"target that selects no clusters": {
		says(owner.String(), "Targets[0].ClusterSelector", "selects nothing"),
		declaring(owner, clustercache.Target{ClusterSelector: labels.Nothing(), Kind: &corev1.Pod{}}),
	},
	"target with an invalid selector": {
		says(owner.String(), "Targets[0].LabelSelector", "unable to parse"),
		declaring(owner, clustercache.Target{
			Cluster: key,
			Kind:    &corev1.Pod{},
			Options: []client.ListOption{client.MatchingLabels{"app name": "x"}},
		}),
	},
	"target with an option of reads": {
		says(owner.String(), "Targets[0].clustercache.MaxStaleness", "is an option of reads"),
		declaring(owner, clustercache.Target{
			Cluster: key,
			Kind:    &corev1.Pod{},
			Options: []client.ListOption{clustercache.MaxStaleness(1)},
		}),
	},
	"wait for a target without a cluster": {
		says("v1 Pod in cluster hub", owner.String(), "cluster not found"),
		func(b *beginner) error {
			require.NoError(b, declaring(owner, clustercache.Target{Kind: &corev1.Pod{}})(b))
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			return b.cc.WaitForSync(ctx, owner)
		},
	},
}

// building builds a controller of a Builder that a function spoils.
func building(spoil func(b *controller.Builder) *controller.Builder) func(b *beginner) error {
	return func(b *beginner) error {
		return spoil(controller.NewControllerManagedBy(fleettest.NewManager(), b.cc)).Complete(newReconciler)
	}
}

func newReconciler(client.Client) reconcile.Reconciler { return reconcile.Func(nil) }

var ofControllers = map[string]mistake{
	"controller without a kind": {
		says("call For or Named"),
		building(func(b *controller.Builder) *controller.Builder { return b }),
	},
	"controller without a reconciler": {says("reconciler: required"), func(b *beginner) error {
		return controller.NewControllerManagedBy(fleettest.NewManager(), b.cc).For(&corev1.Pod{}).Complete(nil)
	}},
	"controller of two kinds": {
		says("For can be called once"),
		building(func(b *controller.Builder) *controller.Builder { return b.For(&corev1.Pod{}).For(&corev1.Node{}) }),
	},
	"controller of nil": {
		says("For: an object that names the kind is required"),
		building(func(b *controller.Builder) *controller.Builder { return b.For(nil) }),
	},
	"controller that owns nil": {
		says("Owns: an object that names the kind is required"),
		building(func(b *controller.Builder) *controller.Builder { return b.For(&corev1.Pod{}).Owns(nil) }),
	},
	"controller that owns without a kind": {
		says("Owns needs For"),
		building(func(b *controller.Builder) *controller.Builder { return b.Named("x").Owns(&corev1.Pod{}) }),
	},
	"controller that watches an unknown kind": {
		says("Watches", "Object 'Kind' is missing"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}).Watches(&unstructured.Unstructured{}, controller.EnqueueObject)
		}),
	},
	"controller that watches without a mapping": {
		says("mapping: required"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}).Watches(&corev1.Node{}, nil)
		}),
	},
	"controller that watches without a handler": {
		says("handler: required"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}).WatchesHandler(&corev1.Node{}, nil)
		}),
	},
	"controller of an option that is nil": {
		says("option of For: required"),
		building(func(b *controller.Builder) *controller.Builder { return b.For(&corev1.Pod{}, nil) }),
	},
	"controller of a predicate for another type": {
		says("Owns", "*v1.Node", "*v1.Secret"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}).Owns(&corev1.Secret{},
				controller.WithPredicates(predicate.TypedFuncs[*corev1.Node]{}))
		}),
	},
	"controller that owns what it reconciles": {
		says("For", "MatchEveryOwner is an option of Owns"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}, controller.MatchEveryOwner)
		}),
	},
	"controller of some pages": {
		says("Watches", "Limit", "a watch has no pages"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.Named("x").Watches(&corev1.Pod{}, controller.EnqueueObject, controller.Selecting(client.Limit(10)))
		}),
	},
	"controller that waits for its caches": {
		says("CacheSyncTimeout", "no source makes the controller wait"),
		building(func(b *controller.Builder) *controller.Builder {
			return b.For(&corev1.Pod{}).WithOptions(
				runtimecontroller.TypedOptions[controller.Request]{CacheSyncTimeout: time.Minute})
		}),
	},
	"controller without anything to watch": {
		says("no watches configured"),
		building(func(b *controller.Builder) *controller.Builder { return b.Named("x") }),
	},
	"controller of a kind that the scheme lacks": {says("For", "no kind is registered"), func(b *beginner) error {
		b.options.Scheme = runtime.NewScheme()
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		return controller.NewControllerManagedBy(fleettest.NewManager(), cc).For(&corev1.Pod{}).Complete(newReconciler)
	}},
	"predicate of another type": {
		says("panicked", "fleet/a", "not *v1.Pod"),
		subscribing(events.Selection{
			Kinds: fleettest.ConfigMaps,
			Watch: true,
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(o client.Object) bool {
				return o.(*corev1.Pod).Spec.HostNetwork
			})},
		}, ignore),
	},
	"setup twice under one name": {says("set Options.Name"), func(b *beginner) error {
		b.options.MetricsRegisterer = prometheus.NewRegistry()
		mgr := fleettest.NewManager()
		for range 2 {
			cc, err := clustercache.SetupWithManager(mgr, b.options)
			if err != nil {
				return err
			}
			fleettest.Run(b.T, cc)
		}
		return nil
	}},
}
