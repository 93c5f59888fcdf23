// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/clustercache/resolver"

// The parts of a resolver. The package resolver has an implementation for every
// common convention.
type (
	// Resolver resolves a cluster to its access.
	Resolver = resolver.Resolver
	// Notifier is a resolver that reports when its answer may have changed.
	Notifier = resolver.Notifier
	// Lister is a resolver that knows which clusters exist.
	Lister = resolver.Lister
	// Access describes how to reach one cluster.
	Access = resolver.Access
)

// ErrNoAccess indicates that there is no access to a cluster yet. Resolvers
// wrap it.
var ErrNoAccess = resolver.ErrNoAccess
