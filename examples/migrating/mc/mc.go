// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package mc stands in for sigs.k8s.io/multicluster-runtime/pkg/multicluster,
// which this module does not require: it has the shapes that docs/migrating.md
// uses. Your program imports the real one.
package mc

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// ClusterName is what a cluster is called.
type ClusterName string

// Aware is told of clusters.
type Aware interface {
	Engage(ctx context.Context, name ClusterName, cl cluster.Cluster) error
}

// ErrClusterNotFound is wrapped by what a provider returns of a cluster that it
// does not know.
var ErrClusterNotFound = errors.New("cluster not found")
