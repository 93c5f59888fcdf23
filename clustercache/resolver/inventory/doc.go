// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package inventory resolves the clusters of a cluster inventory: the
// ClusterProfile objects of sigs.k8s.io/cluster-inventory-api. It does not import
// that module.
//
// A ClusterProfile says where its cluster is, and names access providers, but
// has no credentials. [Profiles] gets them from a credential plugin for the
// provider. Which program that is, and with which arguments and variables it
// runs, is part of the operator's own configuration ([Provider]) and of nothing
// else: what an object asks for besides is ignored. The object chooses the
// address, the certificates, and the extension client.authentication.k8s.io/exec
// of the cluster, which the plugin gets as data if ProvideClusterInfo is set.
// Otherwise an object is as little trusted as a kubeconfig in a Secret, and what
// it may use is in HubOptions.Allow.
//
// [Secrets] is for the older convention, by which the manager of the inventory
// writes a kubeconfig Secret for each consumer.
//
// # Tests
//
// The leading test is TestHazardProfileChoosesWhatRuns.
package inventory
