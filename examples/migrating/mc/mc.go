// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package mc replaces sigs.k8s.io/multicluster-runtime/pkg/multicluster, which
// this module does not require: it has the types that docs/migrating.md uses.
// Your program imports the real one.
package mc

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// ClusterName is the name of a cluster.
type ClusterName string

// Aware is notified of clusters.
type Aware interface {
	Engage(ctx context.Context, name ClusterName, cl cluster.Cluster) error
}

// ErrClusterNotFound is wrapped by a provider's errors for clusters that it
// does not know.
var ErrClusterNotFound = errors.New("cluster not found")
