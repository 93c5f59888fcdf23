// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetcache/fleetcache/clustercache"
)

// The names, labels and texts are those of Cluster API.
var (
	ofCluster = []string{"cluster_name", "cluster_namespace"}

	descHealth = prometheus.NewDesc("capi_cluster_cache_healthcheck",
		"Result of the last clustercache healthcheck for a cluster.", ofCluster, nil)
	descChecks = prometheus.NewDesc("capi_cluster_cache_healthchecks_total",
		"Results of all clustercache healthchecks.", append(slices.Clip(ofCluster), "status"), nil)
	descUp = prometheus.NewDesc("capi_cluster_cache_connection_up",
		"Whether the connection to the cluster is up.", ofCluster, nil)
)

// metrics export what Cluster API exports of each cluster, as of each scrape.
type metrics struct {
	cc *clustercache.ClusterCache
	to prometheus.Registerer // nil: nowhere
}

var _ prometheus.Collector = (*metrics)(nil)

// register takes the names over from Cluster API's package, which registers
// vectors that stay empty, as long as its own ClusterCache is not used.
func (m *metrics) register() error {
	if m.to == nil {
		return nil
	}
	for _, theirs := range []*prometheus.Desc{descHealth, descChecks, descUp} {
		m.to.Unregister(described{theirs})
	}
	if err := m.to.Register(m); err != nil {
		return fmt.Errorf("register metrics of Cluster API's names: %w", err)
	}
	return nil
}

func (m *metrics) unregister() {
	if m.to != nil {
		m.to.Unregister(m)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHealth
	ch <- descChecks
	ch <- descUp
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, status := range m.cc.Statuses() {
		labels := []string{status.Cluster.Name, status.Cluster.Namespace}
		ch <- prometheus.MustNewConstMetric(descUp, prometheus.GaugeValue, number(status.Connected), labels...)
		for result, n := range map[string]int{"success": status.Healthy, "error": status.Unhealthy} {
			if n > 0 { // as a vector, whose series begin with the first result
				of := append(slices.Clip(labels), result)
				ch <- prometheus.MustNewConstMetric(descChecks, prometheus.CounterValue, float64(n), of...)
			}
		}
		if !status.LastProbe.IsZero() {
			healthy := number(status.Failures == 0)
			ch <- prometheus.MustNewConstMetric(descHealth, prometheus.GaugeValue, healthy, labels...)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// described identifies a collector by its only description.
type described struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d described) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d described) Collect(chan<- prometheus.Metric) {}
