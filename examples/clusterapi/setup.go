// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
)

// Both stories of this program run in one process, where names of controllers
// would have to be unique.
var controllerOptions = controller.Options{SkipNameValidation: new(true)}

// before is what a program with Cluster API's ClusterCache does.
func before(ctx context.Context, mgr ctrl.Manager, o clustercache.Options) (clustercache.ClusterCache, error) {
	return clustercache.SetupWithManager(ctx, mgr, o, controllerOptions)
}

// after is what replaces it: the package before SetupWithManager is the only
// difference.
func after(ctx context.Context, mgr ctrl.Manager, o clustercache.Options) (clustercache.ClusterCache, error) {
	return clusterapi.SetupWithManager(ctx, mgr, o, controllerOptions)
}
