// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ManagerFor returns a view of a manager for controllers of a remote cluster: a
// builder given this view makes them watch, read and write cl, and registers
// them with mgr, which runs them and elects their leader. Of mgr's own cluster,
// only leader election and webhooks are visible. It panics if mgr or cl is nil.
func ManagerFor(mgr manager.Manager, cl cluster.Cluster) manager.Manager {
	if mgr == nil || cl == nil {
		panic("multicluster: ManagerFor: mgr and cl are required")
	}
	return &remoteManager{Cluster: cl, hub: hub{mgr}}
}

// remoteManager embeds two sets of methods. A name in both resolves to the
// cluster's, since the manager's is one level deeper; that also holds for
// methods that the interfaces gain.
type remoteManager struct {
	cluster.Cluster
	hub
}

type hub struct{ manager.Manager }

var _ manager.Manager = (*remoteManager)(nil)

// Start runs the manager.
func (m *remoteManager) Start(ctx context.Context) error { return m.hub.Start(ctx) }
