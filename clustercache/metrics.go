// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics that are counted as things happen.
type metrics struct {
	probes     *prometheus.CounterVec
	probeTook  prometheus.Histogram
	connTook   prometheus.Histogram
	connFailed *prometheus.CounterVec
	listTook   prometheus.Histogram

	indexFailed prometheus.Counter
	outdated    prometheus.Counter
	panics      *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_probes_total", Help: "Probes by result.",
		}, []string{"result"}),
		probeTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fleetcache_probe_duration_seconds",
			Help:    "Time that probes took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 8),
		}),
		connTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fleetcache_connect_duration_seconds",
			Help:    "Time that attempts to connect took, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 8),
		}),
		connFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_connect_failures_total", Help: "Attempts to connect that failed, by reason.",
		}, []string{"reason"}),
		listTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fleetcache_list_duration_seconds", Help: "Time that lists took, streamed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
		indexFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetcache_index_failures_total", Help: "Objects for which a function of an index failed.",
		}),
		outdated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetcache_reads_outdated_total",
			Help: "Times that a cache did not answer a read because another watch had shown a later state.",
		}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_callback_panics_total", Help: "Panics of functions that the operator gave, by function.",
		}, []string{"callback"}),
	}
	m.panics.WithLabelValues("Handler") // present from the start, so that an increase is seen
	return m
}

// Probed counts one probe.
func (m *metrics) Probed(began time.Time, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.probes.WithLabelValues(result).Inc()
	m.probeTook.Observe(time.Since(began).Seconds())
}

// Tried counts an attempt to connect.
func (m *metrics) Tried(began time.Time) { m.connTook.Observe(time.Since(began).Seconds()) }

// NotConnected counts an attempt to connect that failed.
func (m *metrics) NotConnected(reason string) { m.connFailed.WithLabelValues(reason).Inc() }

// panicked counts the panic of a function of the operator. Its caller logs it.
func (m *metrics) panicked(name string) { m.panics.WithLabelValues(name).Inc() }

// all returns the metrics.
func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.probes, m.probeTook, m.connTook, m.connFailed, m.listTook, m.indexFailed, m.outdated, m.panics,
	}
}
