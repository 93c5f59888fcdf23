// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetcache/fleetcache/informerpool"
)

// metrics are the metrics of a Keeper.
type metrics struct {
	bytes    prometheus.Gauge
	written  prometheus.Counter
	failures prometheus.Counter
	full     prometheus.Counter
	dropped  *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetcache_persist_bytes", Help: "Bytes of the records that are kept for the next process.",
		}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetcache_persist_written_bytes_total", Help: "Bytes of records that were written.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetcache_persist_failures_total", Help: "Reads and writes of the store that failed.",
		}),
		full: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetcache_persist_skipped_total", Help: "States that were not kept since there was no room.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_persist_dropped_total", Help: "Kept states that were dropped unused, by reason.",
		}, []string{"reason"}),
	}
}

// Collectors returns the metrics.
func (k *Keeper) Collectors() []prometheus.Collector {
	m := k.metrics
	return []prometheus.Collector{m.bytes, m.written, m.failures, m.full, m.dropped}
}

// reasons are the labels of reasons.
var reasons = []struct {
	err   error
	label string
}{
	{errFormat, "format"},
	{errSealed, "encryption"},
	{errBroken, "damaged"},
	{errOldList, "listAge"},
	{errOld, "age"},
	{errClock, "clock"},
	{errIdentity, "identity"},
	{errHistory, "history"},
	{informerpool.ErrHistory, "history"},
	{errSettings, "settings"},
	{errKey, "selection"},
	{informerpool.ErrKind, "kind"},
}

// reason returns the label of a reason.
func reason(why error) string {
	for _, r := range reasons {
		if errors.Is(why, r.err) {
			return r.label
		}
	}
	return "other" // it is the server's, such as 410, or the cluster is gone
}
