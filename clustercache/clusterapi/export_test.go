// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
)

// RegisterMetrics registers the metrics of Cluster API's names.
func RegisterMetrics(cc *clustercache.ClusterCache, to prometheus.Registerer) (unregister func(), err error) {
	m := &metrics{cc: cc, to: to}
	return m.unregister, m.register()
}

// Limit limits what is read of a kind to a namespace.
func Limit(c *ClusterCache, gvk schema.GroupVersionKind, namespace string) {
	c.limits = limits{gvk: {namespace: namespace}}
}
