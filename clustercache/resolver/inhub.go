// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InHub makes a resolver for a convention, with its own client for the hub that
// config describes, such as a manager's:
//
//	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
//
// It does no I/O. The errors are those of the client and of the convention.
func InHub[O any](config *rest.Config, convention func(client.WithWatch, O) (*HubResolver, error), options O) (*HubResolver, error) {
	hub, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, err
	}
	return convention(hub, options)
}
