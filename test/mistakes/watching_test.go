// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"errors"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// watching watches a kind in the cluster, and waits for it.
func watching(obj client.Object, opts ...client.ListOption) func(b *beginner) error {
	return func(b *beginner) error {
		w, err := b.cc.Cluster(key).Watch(b.Context(), obj, opts...)
		if err != nil {
			return err
		}
		return w.WaitForSync(b.Context())
	}
}

// waiting waits for Pods of a cluster, as long as a beginner does.
func waiting(cluster client.ObjectKey) func(b *beginner) error {
	return func(b *beginner) error {
		w, err := b.cc.Cluster(cluster).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		defer cancel()
		return w.WaitForSync(ctx)
	}
}

// subscribing subscribes to objects, and starts that.
func subscribing(s events.Selection, handle func(events.Object)) func(b *beginner) error {
	return func(b *beginner) error {
		b.cluster.Store(fleettest.ColoredConfigMap("x", "red"))
		subscription, err := b.cc.Subscribe(s, handle)
		if err != nil {
			return err
		}
		subscription.Start()
		b.Cleanup(subscription.Stop)
		return nil
	}
}

var swapped = client.ObjectKey{Namespace: key.Name, Name: key.Namespace}

var ofWatching = map[string]mistake{
	"kind that the scheme lacks": {says("v1.Pod", "no kind is registered"), func(b *beginner) error {
		b.options.Scheme = runtime.NewScheme()
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		_, err = cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		return err
	}},
	"watch of nil":           {says("fleet/a", "obj is nil"), watching(nil)},
	"watch of a nil pointer": {says("fleet/a", "obj is nil"), watching((*corev1.Pod)(nil))},
	"object without a kind":  {says("fleet/a", "Object 'Kind' is missing"), watching(&unstructured.Unstructured{})},
	"kind without a version": {
		says("has no version"),
		watching(clustercache.Kind(schema.GroupVersionKind{Kind: "Pod"})),
	},
	"kind that is not served":   {says("no matches for kind"), watching(clustercache.Kind(gadget))},
	"list instead of an object": {says("v1 PodList", "no matches"), watching(kindOf("PodList"))},
	"resource instead of a kind": {
		says("Kind is not watched yet", "fleet/a", "v1 pods", "no matches for kind"),
		func(b *beginner) error {
			_, err := b.cc.Cluster(key).Watch(b.Context(), kindOf("pods"))
			return err
		},
	},
	"kind that cannot be watched": {says("fleet/a", "v1 Binding", "cannot be watched"), func(b *beginner) error {
		_, err := b.cc.Cluster(key).Watch(b.Context(), kindOf("Binding"))
		return err
	}},
	"wait for a kind that cannot be watched": {
		says("fleet/a", "v1 Binding", "cannot be watched"),
		watching(kindOf("Binding")),
	},
	"invalid label selector": {
		says("v1 Pod in cluster fleet/a: clustercache: option LabelSelector: unable to parse"),
		watching(&corev1.Pod{}, client.MatchingLabels{"app name": "x"}),
	},
	"nil selector": {
		says("v1 Pod in cluster fleet/a: clustercache: option LabelSelector: selects nothing"),
		watching(&corev1.Pod{}, client.MatchingLabelsSelector{}),
	},
	"watch by a field that the server lacks": {
		says("Informer refused", `"error"`, "field label not supported: data.color"),
		func(b *beginner) error {
			_, err := b.cc.Cluster(key).Watch(b.Context(), &corev1.Pod{}, client.MatchingFields{"data.color": "red"})
			return err
		},
	},
	"watch of a page": {says("Limit", "a watch has no pages"), watching(&corev1.Pod{}, client.Limit(10))},
	"watch with an option of reads": {
		says("clustercache.ReadMode", "is an option of reads"),
		watching(&corev1.Pod{}, clustercache.CacheOnly),
	},
	"kind that is forbidden": {says("forbidden"), func(b *beginner) error {
		b.cluster.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		return watching(&corev1.ConfigMap{})(b)
	}},
	"wait for a cluster with namespace and name swapped": {
		says("v1 Pod in cluster a/fleet", "cluster not found"),
		waiting(swapped),
	},
	"wait without a cluster": {says("v1 Pod in cluster hub", "cluster not found"), waiting(client.ObjectKey{})},
	"wait without a deadline for a cluster that never comes": {
		says("Disconnected", "fleet/a", "connection refused"),
		func(b *beginner) error {
			b.alone()
			b.cluster.Disconnect()
			cc := b.started()
			w, err := cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
			require.NoError(b, err)
			go func() { _ = w.WaitForSync(b.Context()) }()
			return nil
		},
	},
	"wait for a watch that was released": {says("v1 Pod in cluster fleet/a: watch released"), func(b *beginner) error {
		w, err := b.cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
		w.Release()
		w.Release() // does no harm
		return w.WaitForSync(b.Context())
	}},
	"handler that is nil": {says("handler: required"), func(b *beginner) error {
		_, err := b.cc.Subscribe(events.Selection{}, nil)
		return err
	}},
	"handler of a watch that is nil": {says("v1 Pod in cluster fleet/a: handler is nil"), func(b *beginner) error {
		w, err := b.cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
		_, err = w.AddEventHandler(nil)
		return err
	}},
	"subscription that is not started": {says("call its Start"), func(b *beginner) error {
		_, err := b.cc.SubscribeClusters(ignore)
		return err
	}},
	"subscription to objects that is not started": {says("call its Start"), func(b *beginner) error {
		_, err := b.cc.Subscribe(events.Selection{}, ignore)
		return err
	}},
	"subscription that is started after its stop": {says("make another one"), func(b *beginner) error {
		s, err := b.cc.SubscribeClusters(ignore)
		require.NoError(b, err)
		s.Stop()
		s.Start()
		return nil
	}},
	"events of what nothing watches": {
		says("set Selection.Watch"),
		subscribing(events.Selection{Kinds: []client.Object{&corev1.Secret{}}}, ignore),
	},
	"watch without a kind": {
		says("needs Kinds or Narrowed"),
		subscribing(events.Selection{Watch: true}, ignore),
	},
	"nil among the kinds": {
		says("Kinds[1]", "obj is nil"),
		subscribing(events.Selection{Kinds: []client.Object{&corev1.Pod{}, (*corev1.Node)(nil)}}, ignore),
	},
	"kind of a subscription that is not known": {
		says("Kinds[0]", "Object 'Kind' is missing"),
		subscribing(events.Selection{Kinds: []client.Object{&unstructured.Unstructured{}}}, ignore),
	},
	"handler that asserts another type": {
		says("panicked", "fleet/a", "not *v1.Pod"),
		subscribing(
			events.Selection{Kinds: fleettest.ConfigMaps, Watch: true},
			func(e events.Object) { ignore(client.Object(e.New).(*corev1.Pod)) },
		),
	},
	"handler that changes a shared object": {
		says("panicked", "fleet/a", "read-only"),
		subscribing(
			events.Selection{Kinds: fleettest.ConfigMaps, Watch: true},
			func(e events.Object) { e.New.SetLabels(nil) },
		),
	},
	"watch set without a handler": {says("set Options.Handle"), func(b *beginner) error {
		set, err := watchset.New(b.cc, watchset.Options{})
		require.NoError(b, err)
		b.Cleanup(set.Stop)
		_, err = set.Replace(b.Context(), map[string]watchset.Entry{"all": {Cluster: key, GVK: fleettest.ConfigMap}})
		return err
	}},
	"entry of a watch set without a kind": {says(`entry "all"`, "kind: required"), func(b *beginner) error {
		handle := func(context.Context, watchset.Event) error { return nil }
		set, err := watchset.New(b.cc, watchset.Options{Handle: handle})
		require.NoError(b, err)
		b.Cleanup(set.Stop)
		_, err = set.Replace(b.Context(), map[string]watchset.Entry{"all": {Cluster: key}})
		return err
	}},
}

func kindOf(kind string) client.Object {
	return clustercache.Kind(schema.GroupVersionKind{Version: "v1", Kind: kind})
}

// getting reads an object of a kind that is watched.
func getting(from, name client.ObjectKey, obj client.Object) func(b *beginner) error {
	return func(b *beginner) error {
		b.sync(&corev1.ConfigMap{})
		return b.cc.Cluster(from).Reader().Get(b.Context(), name, obj)
	}
}

var ofReading = map[string]mistake{
	"typo in the name of a cluster": {
		says("v1 ConfigMap in cluster fleet/aa: unknown cluster"),
		getting(fleettest.Key("aa"), fleettest.Key("x"), &corev1.ConfigMap{}),
	},
	"namespace and name of a cluster swapped": {
		says("v1 ConfigMap in cluster a/fleet: unknown cluster"),
		getting(swapped, fleettest.Key("x"), &corev1.ConfigMap{}),
	},
	"empty key of a cluster": {
		says("v1 ConfigMap in cluster hub: unknown cluster"),
		getting(client.ObjectKey{}, fleettest.Key("x"), &corev1.ConfigMap{}),
	},
	"object without a name": {
		says("v1 ConfigMap in cluster fleet/a", "name of the object is empty"),
		getting(key, client.ObjectKey{Namespace: "default"}, &corev1.ConfigMap{}),
	},
	"object without its namespace": {
		says("v1 ConfigMap in cluster fleet/a", "namespace of the object is empty"),
		getting(key, client.ObjectKey{Name: "x"}, &corev1.ConfigMap{}),
	},
	"read into nil": {says("fleet/a", "to read into is nil"), getting(key, fleettest.Key("x"), nil)},
	"read into a nil pointer": {
		says("fleet/a", "to read into is nil"),
		getting(key, fleettest.Key("x"), (*corev1.Pod)(nil)),
	},
	"list of an unknown kind": {says("fleet/a", "Object 'Kind' is missing"), func(b *beginner) error {
		return b.cc.Cluster(key).Reader().List(b.Context(), &unstructured.UnstructuredList{})
	}},
	"cached read without a watch": {says("v1 ConfigMap in cluster fleet/a: not watched"), func(b *beginner) error {
		return b.cc.Cluster(key).Reader().List(b.Context(), &corev1.ConfigMapList{}, clustercache.CacheOnly)
	}},
	"field without an index": {says("not supported by the cache"), func(b *beginner) error {
		b.sync(&corev1.ConfigMap{})
		return b.cc.Cluster(key).Reader().List(b.Context(), &corev1.ConfigMapList{}, clustercache.CacheOnly,
			client.MatchingFields{"data.color": "red"})
	}},
	"field without an index, by default": {
		says("v1 ConfigMap in cluster fleet/a", "data.color", "Options.Indexes"),
		func(b *beginner) error {
			b.sync(&corev1.ConfigMap{})
			red := client.MatchingFields{"data.color": "red"}
			return b.cc.Cluster(key).Reader().List(b.Context(), &corev1.ConfigMapList{}, red)
		},
	},
	"index function that asserts another type": {
		says("v1 ConfigMap in cluster fleet/a", `index "data.color"`, "panicked"),
		func(b *beginner) error {
			b.cluster.Store(fleettest.ColoredConfigMap("x", "red"))
			b.options.Indexes = []clustercache.Index{{
				GVK:    fleettest.ConfigMap,
				Field:  "data.color",
				Values: func(o client.Object) []string { return []string{o.(*corev1.Pod).Name} },
			}}
			b.cc = b.started()
			b.sync(&corev1.ConfigMap{})
			red := client.MatchingFields{"data.color": "red"}
			return b.cc.Cluster(key).Reader().List(b.Context(), &corev1.ConfigMapList{}, red)
		},
	},
	"field that is indexed twice": {says("v1 Pod", `"x"`, "is indexed already"), func(b *beginner) error {
		c, err := multicluster.New(b.cc, multicluster.Options{}).Cluster(key)
		require.NoError(b, err)
		require.NoError(b, c.GetFieldIndexer().IndexField(b.Context(), &corev1.Pod{}, "x", values))
		return c.GetFieldIndexer().IndexField(b.Context(), &corev1.Pod{}, "x", values)
	}},
}

// reading reads the Pods of the fleet, and returns the errors.
func reading(kind client.Object, opts ...client.ListOption) func(b *beginner) error {
	return func(b *beginner) (failed error) {
		for _, err := range fleet.List(b.Context(), b.cc, kind, opts...) {
			failed = errors.Join(failed, err)
		}
		return failed
	}
}

var ofTheFleet = map[string]mistake{
	"negative option of a read of the fleet": {
		says("Concurrency: must not be negative"),
		reading(&corev1.Pod{}, &fleet.Options{Concurrency: -1}),
	},
	"options of a read of the fleet given twice": {
		says("option Options: given twice"),
		reading(&corev1.Pod{}, fleet.Options{Sorted: true}, fleet.Options{ClusterSelector: labels.Everything()}),
	},
	"read of a cluster of the fleet that does not exist": {
		says("v1 Pod in cluster a/fleet: unknown cluster"),
		reading(&corev1.Pod{}, fleet.Options{Clusters: []client.ObjectKey{swapped}}),
	},
	"read of a kind that the fleet does not serve": {
		says("shop.example/v1 Gadget in cluster fleet/a: no matches"),
		reading(clustercache.Kind(gadget)),
	},
	"read of a fleet without clusters": {says("set Discover"), func(b *beginner) error {
		b.cc.Cluster(key).Disengage()
		synctest.Wait()
		var total fleet.Total
		err := reading(&corev1.Pod{}, &total)(b)
		require.False(b, total.Complete())
		return err
	}},
}
