// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var descRemaining = prometheus.NewDesc("fleetcache_sharding_lease_remaining_seconds",
	"Seconds until the lease of this replica ends, unless it is renewed; 0 while it may own nothing.", nil, nil)

var _ prometheus.Collector = (*Sharding)(nil)

// Describe implements prometheus.Collector. A ClusterCache that uses the
// Sharding collects its metrics.
func (s *Sharding) Describe(out chan<- *prometheus.Desc) { out <- descRemaining }

// Collect implements prometheus.Collector. It does no I/O.
func (s *Sharding) Collect(out chan<- prometheus.Metric) {
	remaining := max(time.Until(s.table.Load().until), 0)
	out <- prometheus.MustNewConstMetric(descRemaining, prometheus.GaugeValue, remaining.Seconds())
}
