// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/migrating/mc"
)

// Provider is the provider for multicluster-runtime's manager.
type Provider = *multicluster.Provider[mc.ClusterName, mc.Aware]

// NewProvider makes a Provider for the Secrets that multicluster-runtime's
// kubeconfig provider reads.
func NewProvider(config *rest.Config, namespace string) (*clustercache.ClusterCache, Provider, error) {
	access, err := resolver.InHub(config, resolver.MulticlusterRuntime, resolver.HubOptions{Namespace: namespace})
	if err != nil {
		return nil, nil, err
	}
	cc, err := clustercache.New(clustercache.Options{Resolver: access, Discover: true})
	if err != nil {
		return nil, nil, err
	}
	clusters := multicluster.New(cc, multicluster.Options{})
	provider := multicluster.NewProvider[mc.ClusterName, mc.Aware](clusters,
		multicluster.ProviderOptions{NotFound: mc.ErrClusterNotFound})
	return cc, provider, nil
}
