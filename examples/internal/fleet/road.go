// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// Road is another way to a cluster, which can be cut and delayed while its API
// server is well. TLS passes through it and verifies as without it.
type Road struct {
	*faultproxy.Proxy

	to Cluster
}

// NewRoad opens a road to a cluster of the fleet. It is closed by Stop.
func (f *Fleet) NewRoad(to Cluster) (*Road, error) {
	proxy, err := faultproxy.New(strings.TrimPrefix(to.Config().Host, scheme))
	if err != nil {
		return nil, err
	}
	r := &Road{Proxy: proxy, to: to}
	f.roads = append(f.roads, r)
	return r, nil
}

// scheme is how the URLs of all clusters begin. An address follows.
const scheme = "https://"

// Redirect returns a copy of a config for the cluster, for any user, that
// connects by the road.
func (r *Road) Redirect(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = scheme + r.Addr()
	return config
}

// Config returns a new config for the administrator that connects by the road.
func (r *Road) Config() *rest.Config { return r.Redirect(r.to.Config()) }

// Kubeconfig returns Config as a kubeconfig with all data inline.
func (r *Road) Kubeconfig() []byte { return testenv.Kubeconfig(r.Config()) }
