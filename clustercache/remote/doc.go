// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package remote has what reconcilers write into remote clusters beside their
// own objects: events, and finalizers.
//
//	recorder, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "example.com/rollout"})
//	err = mgr.Add(recorder)
//	...
//	recorder.For(request.Cluster).Eventf(obj, nil, corev1.EventTypeNormal, "Deployed", "Deploy", "version %s", v)
//
// # Finalizers of clusters that are gone
//
// A finalizer keeps its object until the program that added it removes it. In a
// remote cluster, three cases have no counterpart in the program's own:
//
//   - The cluster is not connected. Its objects stay; RemoveFinalizer fails with
//     clustercache.ErrNotConnected, and the reconciler is called again once the
//     cluster is connected.
//   - The cluster is removed from the fleet, and lives on. Nothing can remove the
//     finalizer any more: objects that are deleted there stay forever. Remove
//     finalizers before the access is taken away, for example by a finalizer of
//     the hub's object that grants it.
//   - The cluster does not exist any more. Its objects are gone with it, and a
//     finalizer of a hub's object that stands for them can be removed. That is
//     not what clustercache.ErrUnknownCluster says, which is also the error
//     before a cluster was found: decide by the object of the hub that describes
//     the cluster.
//
// # Tests
//
// TestFinalizersOfOthersAreKept covers finalizers.
// TestEventIsWrittenIntoTheClusterOfItsObject covers events.
package remote
