// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// Tokens returns a token for a cluster, as the SDK of a cloud does: it keeps the
// last one until shortly before it expires.
type Tokens func(ctx context.Context, cluster resolver.Cluster) (string, error)

// refreshing is a transport that asks for a token with each request.
type refreshing struct {
	next    http.RoundTripper
	cluster resolver.Cluster
	tokens  Tokens
}

// RoundTrip implements http.RoundTripper.
func (r *refreshing) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := r.tokens(request.Context(), r.cluster)
	if err != nil {
		return nil, fmt.Errorf("token of cluster %s: %w", r.cluster, err)
	}
	request = request.Clone(request.Context()) // a RoundTripper must not change its argument
	request.Header.Set("Authorization", "Bearer "+token)
	return r.next.RoundTrip(request)
}

// Cloud resolves clusters whose tokens the operator asks a cloud for.
func Cloud(endpoints map[resolver.Cluster]resolver.Endpoint, tokens Tokens) resolver.Resolver {
	return resolver.Func(func(_ context.Context, cluster resolver.Cluster) (resolver.Access, error) {
		endpoint, ok := endpoints[cluster]
		if !ok {
			return resolver.Access{}, resolver.ErrClusterNotFound
		}
		return resolver.NewAccess(&rest.Config{
			Host:            endpoint.Server,
			TLSClientConfig: rest.TLSClientConfig{CAData: endpoint.CA, ServerName: endpoint.ServerName},
			WrapTransport: func(next http.RoundTripper) http.RoundTripper {
				return &refreshing{next: next, cluster: cluster, tokens: tokens}
			},
		})
	})
}

// Tunnel resolves clusters that are reached through connections which they
// opened to the operator. The endpoint names what the certificates of the API
// servers are for.
func Tunnel(
	endpoint resolver.Endpoint, token string,
	dial func(ctx context.Context, cluster resolver.Cluster) (net.Conn, error),
) resolver.Resolver {
	return resolver.Func(func(_ context.Context, cluster resolver.Cluster) (resolver.Access, error) {
		return resolver.NewAccess(&rest.Config{
			Host:            endpoint.Server,
			TLSClientConfig: rest.TLSClientConfig{CAData: endpoint.CA},
			BearerToken:     token,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dial(ctx, cluster)
			},
		})
	})
}
