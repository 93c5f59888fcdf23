// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package subjects

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// fleetcache is this project's ClusterCache.
type fleetcache struct {
	form    form // of what is read
	keys    []client.ObjectKey
	cache   *clustercache.ClusterCache
	watches []*clustercache.Watch
	cancel  context.CancelFunc
	ended   errgroup.Group
}

func keyOf(c measure.Cluster) client.ObjectKey {
	return client.ObjectKey{Namespace: "fleet", Name: c.Name}
}

// Persisting returns how to open a ClusterCache that keeps its caches, Secrets
// as well, in a store, or none if that is nil.
func Persisting(store persist.Store, metrics prometheus.Registerer) measure.Open {
	options := clustercache.Options{MetricsRegisterer: metrics}
	if store != nil {
		options.Persist = persist.Options{
			Store:        store,
			Secrets:      true,
			FlushTimeout: time.Minute,
		}
	}
	return openFleetcache(metadataForm, options)
}

// openFleetcache opens a ClusterCache with options, from which objects are read
// in one form.
func openFleetcache(form form, options clustercache.Options) measure.Open {
	return func(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
		f := &fleetcache{form: form}
		configs := map[client.ObjectKey]*rest.Config{}
		for _, c := range clusters {
			config := ConfigOf(c)
			config.QPS = 0 // the ClusterCache's default
			f.keys = append(f.keys, keyOf(c))
			configs[keyOf(c)] = config
		}
		static, err := resolver.Static(configs)
		if err != nil {
			return nil, err
		}
		options := options
		options.Resolver, options.ReadMode = static, clustercache.CacheOnly
		if f.cache, err = clustercache.New(options); err != nil {
			return nil, err
		}
		ctx, f.cancel = context.WithCancel(ctx)
		f.ended.Go(func() error { return f.cache.Start(ctx) })

		return f, nil
	}
}

// Watch implements measure.Subject.
func (f *fleetcache) Watch(ctx context.Context, kinds []measure.Kind) error {
	for _, key := range f.keys {
		for _, k := range kinds {
			w, err := f.cache.Cluster(key).Watch(ctx, clustercache.Kind(gvkOf(k)))
			if err != nil {
				return err
			}
			f.watches = append(f.watches, w)
		}
	}

	for _, w := range f.watches {
		if err := w.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Count implements measure.Subject.
func (f *fleetcache) Count(_ context.Context, k measure.Kind) (int, error) {
	n := 0
	for _, w := range f.watches {
		if w.GVK() == gvkOf(k) {
			n += w.Status().Informer.Objects
		}
	}
	return n, nil
}

// Bytes returns the heap of all cached objects.
func (f *fleetcache) Bytes() (n int64) {
	for _, w := range f.watches {
		n += w.Status().Informer.Bytes
	}
	return n
}

// ResourceVersion implements measure.Subject.
func (f *fleetcache) ResourceVersion(ctx context.Context, m measure.Mark) (string, error) {
	return versionIn(ctx, f.cache.Cluster(f.keys[m.Cluster]).Reader(), m)
}

// versionIn reads an object's metadata.
func versionIn(ctx context.Context, r client.Reader, m measure.Mark) (string, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvkOf(m.Kind))
	err := r.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Name}, o)
	return o.ResourceVersion, err
}

// Listen implements measure.Listener.
func (f *fleetcache) Listen(_ context.Context, k measure.Kind, handle func(int, measure.Object)) error {
	for _, w := range f.watches {
		if w.GVK() != gvkOf(k) {
			continue
		}
		cluster := slices.Index(f.keys, w.Cluster())
		_, err := w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.New != nil && !e.Initial {
				handle(cluster, e.New)
			}
		}))
		if err != nil {
			return err
		}
	}

	return nil
}

// Get implements measure.Reader.
func (f *fleetcache) Get(ctx context.Context, cluster int, k measure.Kind, key measure.Key) error {
	return f.form.get(ctx, f.cache.Cluster(f.keys[cluster]).Reader(), k, key)
}

// List implements measure.Reader.
func (f *fleetcache) List(
	ctx context.Context, cluster int, k measure.Kind, namespace string,
) ([]measure.Key, error) {
	return f.form.list(ctx, f.cache.Cluster(f.keys[cluster]).Reader(), k, namespace)
}

// Stop implements measure.Subject.
func (f *fleetcache) Stop() error {
	f.cancel()
	return f.ended.Wait()
}
