// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/clustercache/resolver"

// What a resolver is made of. The package resolver holds one for every common
// convention.
type (
	// Resolver says how a cluster is reached.
	Resolver = resolver.Resolver
	// Notifier is a resolver that tells when its answer may have changed.
	Notifier = resolver.Notifier
	// Lister is a resolver that knows which clusters exist.
	Lister = resolver.Lister
	// Access is how to reach one cluster.
	Access = resolver.Access
)

// ErrNoAccess indicates that there is no access to a cluster yet. Resolvers
// wrap it.
var ErrNoAccess = resolver.ErrNoAccess
