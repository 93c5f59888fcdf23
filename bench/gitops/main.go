// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command gitops measures the cluster cache of gitops-engine. It is a module of
// its own, since a release of gitops-engine builds with the Kubernetes
// libraries of its time only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fleetcache/fleetcache/bench/measure"
)

func main() {
	klog.SetLogger(logr.Discard())
	named := func(string) (measure.Open, error) { return open, nil }
	err := measure.Main(context.Background(), os.Stdin, os.Stdout, named)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// connecting is how many clusters sync at once.
const connecting = 20

// subject has a cluster cache for each cluster.
type subject struct {
	kinds  kinds
	caches []cache.ClusterCache
}

// kinds limits a cache, which otherwise watches all kinds of a cluster.
type kinds []measure.Kind

// IsExcludedResource implements kube.ResourceFilter.
func (k kinds) IsExcludedResource(group, kind, _ string) bool {
	for _, x := range k {
		if x.Group == group && x.Kind == kind {
			return false
		}
	}
	return true
}

func open(_ context.Context, clusters []measure.Cluster) (measure.Subject, error) {
	s := &subject{}
	for _, c := range clusters {
		config := &rest.Config{
			Host:        c.Host,
			BearerToken: c.Token,
			QPS:         -1,
			TLSClientConfig: rest.TLSClientConfig{
				CAData:   c.CA,
				CertData: c.Cert,
				KeyData:  c.Key,
			},
		}
		s.caches = append(s.caches, cache.NewClusterCache(config,
			cache.SetLogr(logr.Discard()),
			// Keeps the objects, as Argo CD does of those that it manages.
			cache.SetPopulateResourceInfoHandler(func(*unstructured.Unstructured, bool) (any, bool) {
				return nil, true
			}),
		))
	}

	return s, nil
}

// Watch implements measure.Subject.
func (s *subject) Watch(_ context.Context, added []measure.Kind) error {
	s.kinds = append(slices.Clip(s.kinds), added...)
	var g errgroup.Group
	places := make(chan struct{}, connecting)
	for _, c := range s.caches {
		g.Go(func() error {
			places <- struct{}{}
			defer func() { <-places }()
			c.Invalidate(cache.SetSettings(cache.Settings{
				ResourceHealthOverride: cache.NewNoopSettings(),
				ResourcesFilter:        s.kinds,
			}))
			return c.EnsureSynced()
		})
	}
	return g.Wait()
}

// Count implements measure.Subject.
func (s *subject) Count(_ context.Context, k measure.Kind) (int, error) {
	n := 0
	for _, c := range s.caches {
		n += len(c.FindResources("", func(r *cache.Resource) bool {
			gvk := r.Ref.GroupVersionKind()
			return r.Resource != nil && gvk.Group == k.Group && gvk.Kind == k.Kind
		}))
	}
	return n, nil
}

// ResourceVersion implements measure.Subject.
func (s *subject) ResourceVersion(_ context.Context, m measure.Mark) (string, error) {
	key := kube.NewResourceKey(m.Kind.Group, m.Kind.Kind, m.Namespace, m.Name)
	is := func(r *cache.Resource) bool { return r.ResourceKey() == key }
	found := s.caches[m.Cluster].FindResources(m.Namespace, is)
	r, ok := found[key]
	if !ok {
		return "", errors.New("not found")
	}
	return r.ResourceVersion, nil
}

// Listen implements measure.Listener.
func (s *subject) Listen(_ context.Context, k measure.Kind, handle func(int, measure.Object)) error {
	for i, c := range s.caches {
		c.OnEvent(func(_ watch.EventType, u *unstructured.Unstructured) {
			if u.GetKind() == k.Kind {
				handle(i, u)
			}
		})
	}
	return nil
}

// Stop implements measure.Subject.
func (s *subject) Stop() error {
	for _, c := range s.caches {
		c.Invalidate()
	}
	return nil
}
