// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// secrets resolves clusters by their kubeconfig Secrets. It watches those of all
// namespaces, or, where the hub forbids that, as to a manager of one namespace,
// those of each namespace that has a Cluster object.
type secrets struct {
	hub   client.Reader // the API server itself
	log   logr.Logger
	whole *resolver.HubResolver
	// in makes the resolver of a namespace. Nil: the options name one already.
	in func(namespace string) (*resolver.HubResolver, error)

	mu struct {
		sync.Mutex

		in map[string]*resolver.HubResolver // by namespace
	}
}

// Resolve implements resolver.Resolver.
func (s *secrets) Resolve(ctx context.Context, key resolver.Cluster) (resolver.Access, error) {
	s.mu.Lock()
	r := s.mu.in[key.Namespace]
	s.mu.Unlock()

	if r == nil {
		r = s.whole // which reads the Secret alone, until it has listed
	}
	return r.Resolve(ctx, key)
}

// notify reports changes of Secrets until ctx ends. changed is called from many
// goroutines. namespaces are those that have a Cluster object.
func (s *secrets) notify(
	ctx context.Context, namespaces workqueue.TypedInterface[string], changed func(resolver.Cluster),
) error {
	if s.in == nil || !s.forbidden(ctx) {
		return s.whole.Notify(ctx, changed)
	}
	s.log.Info("The kubeconfig Secrets of all namespaces cannot be listed: " +
		"those of each namespace that has a Cluster are watched")
	defer context.AfterFunc(ctx, namespaces.ShutDown)()
	var following sync.WaitGroup
	defer following.Wait()
	for {
		namespace, over := namespaces.Get()
		if over {
			return nil
		}
		namespaces.Done(namespace)
		if r := s.add(namespace); r != nil {
			following.Go(func() { _ = r.Notify(ctx, changed) }) // it ends with ctx alone
		}
	}
}

// forbidden reports whether the hub forbids to list the Secrets of all
// namespaces.
func (s *secrets) forbidden(ctx context.Context) bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := s.hub.List(ctx, list, client.HasLabels{clusterv1.ClusterNameLabel}, client.Limit(1))
	return apierrors.IsForbidden(err)
}

// add returns the resolver of a namespace, or nil if there is one already.
func (s *secrets) add(namespace string) *resolver.HubResolver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.in[namespace] != nil {
		return nil
	}
	r, err := s.in(namespace)
	if err != nil {
		s.log.Error(err, "The kubeconfig Secrets of a namespace cannot be watched", "namespace", namespace)
		return nil
	}
	if s.mu.in == nil {
		s.mu.in = map[string]*resolver.HubResolver{}
	}
	s.mu.in[namespace] = r

	return r
}
