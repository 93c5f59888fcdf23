// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// with makes a cache with options that an edit has spoilt.
func with(edit func(o *clustercache.Options)) func(b *beginner) error {
	return func(b *beginner) error {
		edit(&b.options)
		_, err := clustercache.New(b.options)
		return err
	}
}

func values(client.Object) []string { return nil }

// noAccess is a resolver that forgets to return anything.
func noAccess(context.Context, resolver.Cluster) (resolver.Access, error) {
	return resolver.Access{}, nil
}

var ofOptions = map[string]mistake{
	"no resolver": {
		says("Resolver: required"),
		with(func(o *clustercache.Options) { o.Resolver = nil }),
	},
	"not a number": {
		says("QPS: not a number"),
		with(func(o *clustercache.Options) { o.QPS = math.NaN() }),
	},
	"negative interval": {
		says("ProbeInterval: negative"),
		with(func(o *clustercache.Options) { o.ProbeInterval = -1 }),
	},
	"interval without a unit": {
		says("ProbeInterval", "a number without a unit counts nanoseconds"),
		with(func(o *clustercache.Options) { o.ProbeInterval = 10 }),
	},
	"query of the resolver every 60 ns": {
		says("ResolveInterval", "a number without a unit counts nanoseconds"),
		with(func(o *clustercache.Options) { o.ResolveInterval = 60 }),
	},
	"grace without a unit": {
		says("option Grace", "a number without a unit counts nanoseconds"),
		with(func(o *clustercache.Options) { o.Grace = 30 }),
	},
	"caches stale after 180 ns": {
		says("StaleAfter", "a number without a unit counts nanoseconds"),
		with(func(o *clustercache.Options) { o.StaleAfter = 180 }),
	},
	"checks of owners every 2 ns": {
		says("GC.MinInterval", "a number without a unit counts nanoseconds"),
		with(func(o *clustercache.Options) { o.GC.MinInterval = 2 }),
	},
	"negative option of the collection": {
		says("GC.Timeout: negative"),
		with(func(o *clustercache.Options) { o.GC.Timeout = -time.Second }),
	},
	"leader election and sharding": {
		says("LeaderOnly: contradicts Sharding"),
		with(func(o *clustercache.Options) { o.LeaderOnly, o.Sharding = true, clustercachetest.NewSharding() }),
	},
	"discovery by a function": {
		says("Discover: needs a Resolver that lists clusters"),
		with(func(o *clustercache.Options) { o.Discover, o.Resolver = true, resolver.Func(noAccess) }),
	},
	"index without a kind": {
		says("Indexes[0].GVK: required"),
		with(func(o *clustercache.Options) {
			o.Indexes = []clustercache.Index{{Field: "spec.nodeName", Values: values}}
		}),
	},
	"field indexed twice": {
		says("Indexes[1]: the field has an index already"),
		with(func(o *clustercache.Options) {
			x := clustercache.Index{GVK: fleettest.ConfigMap, Field: "data.color", Values: values}
			o.Indexes = []clustercache.Index{x, x}
		}),
	},
	"persistence without a store": {
		says("Persist.Store: required"),
		with(func(o *clustercache.Options) { o.Persist.Interval = time.Minute }),
	},
	"relative probe path": {
		says("ProbePath: must be an absolute path"),
		with(func(o *clustercache.Options) { o.ProbePath = "readyz" }),
	},
	"store in use": {says("db", persist.ErrLocked.Error()), func(b *beginner) error {
		path := filepath.Join(b.TempDir(), "db")
		store, err := bolt.Open(path, bolt.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, store.Close()) })
		_, err = bolt.Open(path, bolt.Options{})
		return err
	}},
	"store that cannot be written": {says("open", "/proc/db"), func(*beginner) error {
		_, err := bolt.Open("/proc/db", bolt.Options{})
		return err
	}},
	"store that is a kubeconfig": {says("config", "not a file of fleetcache's caches"), func(b *beginner) error {
		path := filepath.Join(b.TempDir(), "config")
		require.NoError(b, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
		_, err := bolt.Open(path, bolt.Options{})
		return err
	}},
	"Secrets that are kept alone, and left out": {
		says("Persist.Only: Secrets are kept with Persist.Secrets only"),
		with(func(o *clustercache.Options) {
			o.Persist.Store, o.Persist.Only = &bolt.Store{}, []schema.GroupKind{{Kind: "Secret"}}
		}),
	},
	"sharding without a name": {says("Name: required"), func(*beginner) error {
		_, err := sharding.New(&rest.Config{}, sharding.Options{Namespace: "fleet"})
		return err
	}},
	"sharding without a namespace": {says("Namespace: required"), func(*beginner) error {
		_, err := sharding.New(&rest.Config{}, sharding.Options{Name: "operator"})
		return err
	}},
}

var ofLifecycle = map[string]mistake{
	"cache that is never started": {says("until its Start is called"), func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		return cc.Cluster(key).Engage()
	}},
	"read before start": {says("fleet/a", "cluster cache not started"), func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		return cc.Cluster(key).Reader().Get(b.Context(), client.ObjectKey{Name: "x"}, &corev1.Node{})
	}},
	"write before start": {says("fleet/a", "cluster cache not started"), func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		require.NoError(b, cc.Cluster(key).Engage())
		c, err := cc.Cluster(key).Client()
		require.NoError(b, err)
		return c.Create(b.Context(), fleettest.ColoredConfigMap("x", "red"))
	}},
	"wait before start": {says("until its Start is called"), func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		w, err := cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		b.Cleanup(cancel)
		go func() { _ = w.WaitForSync(ctx) }() // has no deadline
		return nil
	}},
	"second start": {says("started already"), func(b *beginner) error { return b.cc.Start(b.Context()) }},
	"use after the end": {says("watch v1 Pod in cluster fleet/a: cluster cache closed"), func(b *beginner) error {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		require.NoError(b, cc.Start(ctx))
		_, err = cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		return err
	}},
	"two caches of one name": {says("set Options.Name"), func(b *beginner) error {
		b.options.MetricsRegisterer = prometheus.NewRegistry()
		for range 2 {
			fleettest.Start(b.T, b.options)
		}
		return nil
	}},
	"no discovery and no use": {says("set Options.Discover"), func(b *beginner) error {
		b.started()
		return nil
	}},
	"resolver that returns nothing": {
		says("phase", "fleet/a", "resolver returned no access and no error"),
		func(b *beginner) error {
			b.options.Resolver = resolver.Func(noAccess)
			return b.started().Cluster(key).Engage()
		},
	},
	"read with a client that is too early": {says("fleet/a", "connecting"), func(b *beginner) error {
		cc := b.started()
		b.cluster.Hang()
		require.NoError(b, cc.Cluster(key).Engage())
		synctest.Wait()
		return cc.Cluster(key).Reader().List(b.Context(), &corev1.ConfigMapList{})
	}},
}
