// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/internal/listopts"
)

// remote is one cluster. It embeds the result of cluster.New, made from parts
// that follow the cluster, so that methods that the interface may gain work,
// too.
type remote struct {
	cluster.Cluster

	key   client.ObjectKey
	cache *remoteCache
}

var _ cluster.Cluster = (*remote)(nil)

// newRemote makes a cluster without I/O.
func newRemote(s *Clusters, key client.ObjectKey) (*remote, error) {
	config, err := s.cc.Cluster(key).TransportConfig()
	if err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	r := &remote{key: key, cache: newRemoteCache(s, key)}
	ours := func(o *cluster.Options) {
		o.Scheme = s.cc.Options().Scheme
		o.HTTPClient = httpClient
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return &mapper{cc: s.cc, key: key}, nil
		}
		o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return r.cache, nil }
		newClient := o.NewClient
		if newClient == nil {
			newClient = client.New
		}
		o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := newClient(config, options)
			if err != nil {
				return nil, err
			}
			return listopts.Client(c), nil
		}
		if o.Client.Cache == nil {
			// One informer serves every form of a kind, so unstructured objects
			// need not be read from the server.
			o.Client.Cache = &client.CacheOptions{Unstructured: true}
		}
	}
	options := append(append([]cluster.Option{}, s.options.ClusterOptions...), ours)
	if r.Cluster, err = cluster.New(config, options...); err != nil {
		return nil, err
	}
	return r, nil
}

// GetAPIReader implements cluster.Cluster.
func (r *remote) GetAPIReader() client.Reader { return listopts.Reader(r.Cluster.GetAPIReader()) }
