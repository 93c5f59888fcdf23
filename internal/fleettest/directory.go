// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/directory"
)

// Directory is a resolver whose answers the test sets. Of a cluster that it does
// not have, the Secret is missing.
type Directory struct {
	*directory.Directory

	mu    sync.Mutex
	asked map[client.ObjectKey]int
}

// NewDirectory returns an empty Directory.
func NewDirectory() *Directory {
	return &Directory{Directory: directory.Of(resolver.ErrSecretNotFound), asked: map[client.ObjectKey]int{}}
}

// Set makes a cluster known, or changes how it is reached.
func (d *Directory) Set(key client.ObjectKey, config *rest.Config) { d.Answer(key, access(config)) }

// SetQuietly is Set without a notification.
func (d *Directory) SetQuietly(key client.ObjectKey, config *rest.Config) {
	d.AnswerQuietly(key, access(config))
}

func access(config *rest.Config) directory.Answer {
	return func() (resolver.Access, error) { return resolver.NewAccess(config) }
}

// Fail answers with an error.
func (d *Directory) Fail(key client.ObjectKey, err error) {
	d.Answer(key, func() (resolver.Access, error) { return resolver.Access{}, err })
}

// TimesAsked returns how often the cluster was resolved.
func (d *Directory) TimesAsked(key client.ObjectKey) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[key]
}

// Resolve implements resolver.Resolver.
func (d *Directory) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	d.mu.Lock()
	d.asked[key]++
	d.mu.Unlock()
	return d.Directory.Resolve(ctx, key)
}
