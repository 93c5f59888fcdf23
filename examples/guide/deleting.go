// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/remote"
)

// CopyFinalizer keeps an object of the hub until its copy is gone.
const CopyFinalizer = "example.com/copy"

// Copy is where the copy of an object of the hub is.
type Copy struct {
	Owner   clustercache.Owner // the original
	Cluster client.ObjectKey
	Kind    schema.GroupVersionKind
	Name    client.ObjectKey
}

// target returns what the original needs.
func (c Copy) target() clustercache.Target {
	return clustercache.Target{
		Cluster: c.Cluster,
		Kind:    clustercache.Kind(c.Kind),
		Options: []client.ListOption{client.InNamespace(c.Name.Namespace)},
	}
}

// End deletes the copy of an original that is being deleted, and lets the
// original go once the copy has gone. The reconciler of the original calls it on
// every run, and is called again whenever the copy changes.
func (c Copy) End(ctx context.Context, hub client.Client, cc *clustercache.ClusterCache, original client.Object) error {
	east, err := cc.Cluster(c.Cluster).Client()
	if err != nil {
		return err
	}
	copied := clustercache.Kind(c.Kind)
	if _, err := cc.Declare(ctx, c.Owner, c.target()); err != nil {
		return err
	}
	switch err := east.Get(ctx, c.Name, copied, clustercache.LiveOnly); {
	case apierrors.IsNotFound(err): // its own finalizers have ended as well
		if _, err := remote.RemoveFinalizer(ctx, hub, original, CopyFinalizer); err != nil {
			return err
		}
		cc.Drop(c.Owner)
		return nil
	case err != nil:
		return err
	case copied.GetDeletionTimestamp() != nil:
		return nil // its next change, and its end, lead here again
	}
	return client.IgnoreNotFound(east.Delete(ctx, copied))
}
