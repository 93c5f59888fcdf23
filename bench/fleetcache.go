// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// fleet uses this project's pool.
type fleet struct {
	pool   *informerpool.Pool
	client *http.Client
	url    string
	leases []*informerpool.Lease
}

// openSeam opens a pool with the transport that package clustercache uses.
func openSeam(config *rest.Config) (watcher, error) {
	s := transport.New(transport.Options{Cluster: "bench"})
	if err := s.Swap(config, "1"); err != nil {
		return nil, err
	}
	s.Open()
	return newFleet(s.StreamClient(), s.URL(), informerpool.Options{})
}

// openRest opens a pool with client-go's transport.
func openRest(config *rest.Config) (watcher, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return newFleet(c, config.Host, informerpool.Options{})
}

// newFleet returns a pool that connects to its one cluster through the client.
func newFleet(c *http.Client, url string, o informerpool.Options) (*fleet, error) {
	o.Source = informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
		return informerpool.Endpoint{Client: c, URL: url}, nil
	})
	pool, err := informerpool.New(o)
	if err != nil {
		return nil, err
	}
	return &fleet{pool: pool, client: c, url: url}, nil
}

func (f *fleet) watch(ctx context.Context, k kind, namespaces ...string) error {
	if err := knock(ctx, f.client, f.url); err != nil {
		return err
	}
	f.leases = nil
	for _, ns := range namespaces {
		l, err := f.pool.Acquire(ctx, informerpool.Key{Resource: k.resource, Namespace: ns})
		if err != nil {
			return err
		}
		f.leases = append(f.leases, l)
	}

	for _, l := range f.leases {
		if err := l.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) handle(ctx context.Context) error {
	for _, l := range f.leases {
		s := f.pool.Subscribe(informerpool.HandlerFunc(func(informerpool.Event) {}))
		if err := s.Add(l); err != nil {
			return err
		}
		if err := s.WaitForSync(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
	}

	return nil
}

func (f *fleet) count(context.Context) (int, error) {
	n := 0
	for _, l := range f.leases {
		n += l.Status().Objects
	}
	return n, nil
}
