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
		probes:    counters("probes_total", "Probes by result.", "result"),
		probeTook: durations("probe_duration_seconds", "Time that probes took.", 0.005, 3),
		connTook: durations("connect_duration_seconds",
			"Time that attempts to connect took, failed ones included.", 0.005, 3),
		connFailed:  counters("connect_failures_total", "Attempts to connect that failed, by reason.", "reason"),
		listTook:    durations("list_duration_seconds", "Time that lists took, streamed ones included.", 0.01, 4),
		indexFailed: counter("index_failures_total", "Objects for which a function of an index failed."),
		outdated: counter("reads_outdated_total",
			"Times that a cache did not answer a read because another watch had shown a later state."),
		panics: counters("callback_panics_total",
			"Panics of functions that the operator gave, by function.", "callback"),
	}
	m.panics.WithLabelValues("Handler") // present from the start, so that an increase is seen
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "fleetcache_" + name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fleetcache_" + name, Help: help}, []string{label})
}

// durations returns a histogram of eight buckets, the first of which ends at
// least seconds.
func durations(name, help string, least, factor float64) prometheus.Histogram {
	buckets := prometheus.ExponentialBuckets(least, factor, 8)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fleetcache_" + name, Help: help, Buckets: buckets})
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
