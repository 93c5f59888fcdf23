// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package subjects makes the measured libraries watch many clusters: each as
// its documentation says, with its own defaults.
package subjects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Names of the subjects.
const (
	Fleetcache = "fleetcache"
	// FleetcacheShared reads without copies, with room for what it reads.
	FleetcacheShared       = "fleetcache/shared"
	FleetcacheUnstructured = "fleetcache/unstructured"
	// FleetcacheCollecting collects garbage more often while many lists run.
	FleetcacheCollecting = "fleetcache/BurstGCPercent=25"
	Dynamic              = "client-go/dynamic"
	Unstructured         = "controller-runtime/unstructured"
	Stripped             = "controller-runtime/unstructured-stripped"
	Typed                = "controller-runtime/typed"
	Metadata             = "controller-runtime/metadata"
	ClusterAPI           = "cluster-api/clustercache"
	// GitOps is measured by a program of its own, since its dependencies are
	// years older.
	GitOps = "gitops-engine"
)

// sharedBytes is room for the hot objects of an operator, decoded.
const sharedBytes = 128 << 20

var byName = map[string]measure.Open{
	Fleetcache: openFleetcache(typedForm, clustercache.Options{}),
	FleetcacheShared: openFleetcache(typedForm, clustercache.Options{
		UnsafeDisableDeepCopy: true,
		Informers:             informerpool.Options{DecodedBytes: sharedBytes},
	}),
	FleetcacheUnstructured: openFleetcache(unstructuredForm, clustercache.Options{}),
	FleetcacheCollecting: openFleetcache(typedForm, clustercache.Options{
		Informers: informerpool.Options{BurstGCPercent: 25},
	}),

	Dynamic:      openDynamic,
	Unstructured: openRuntime(unstructuredForm, false),
	Stripped:     openRuntime(unstructuredForm, true),
	Typed:        openRuntime(typedForm, false),
	Metadata:     openRuntime(metadataForm, false),
	ClusterAPI:   openClusterAPI,
}

// Named returns how to open a subject.
func Named(name string) (measure.Open, error) {
	open, ok := byName[name]
	if !ok {
		return nil, fmt.Errorf("no subject %q", name)
	}
	return open, nil
}

// ConfigOf returns the configuration for a cluster, without a limit of
// requests: what is measured is not how long a client waits for itself.
func ConfigOf(c measure.Cluster) *rest.Config {
	return &rest.Config{
		Host:        c.Host,
		BearerToken: c.Token,
		QPS:         -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.CA,
			CertData: c.Cert,
			KeyData:  c.Key,
		},
	}
}

func gvkOf(k measure.Kind) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

func gvrOf(k measure.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}
