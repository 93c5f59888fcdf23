// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxInstances bounds the search for a free name of the label "cache".
const maxInstances = 1000

// describe returns the description of a metric. The label "cache" tells instances in one process apart.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fleetcache_"+name, help, labels, nil)
}

// Descriptions of what is read off at each scrape. Series of a cluster end with it.
var (
	descClusters = describe("clusters", "Known clusters by phase.", "phase")
	descUp       = describe("cluster_up", "Whether the cluster is connected.", "cluster")
	descStale    = describe("cluster_staleness_seconds", "Time since the last sign of life of the informer that had none for longest.", "cluster")
	descConnects = describe("connects_total", "Connections made, the first one included.", "cluster")
	descResets   = describe("history_resets_total", "Times that another history was found: another cluster, or a rolled back one.", "cluster")
	descInformer = describe("informers", "Informers that run.", "cluster")
	descRefs     = describe("informer_references", "Leases held on informers.", "cluster")
	descObjects  = describe("cached_objects", "Objects in the cache.", "cluster")
	descBytes    = describe("cached_bytes", "Memory the cached objects take, about.", "cluster")
	descStalls   = describe("watch_stalls_total", "Streams of running informers cut because nothing came.", "cluster")
	descRejected = describe("rejected_objects_total", "Objects running informers refused as broken.", "cluster")
	descExpiry   = describe("credential_expiry_timestamp_seconds", "When the credentials in use end, where that is known.", "cluster")
	descSubs     = describe("event_subscribers", "Subscribers to cluster events.")
)

// metrics are what is counted as it happens, and the collector of it all.
type metrics struct {
	cc         *ClusterCache
	registered prometheus.Registerer // what to unregister from; nil: nothing
	probes     *prometheus.CounterVec
	probeTook  prometheus.Histogram
	connTook   prometheus.Histogram
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(cc *ClusterCache) *metrics {
	return &metrics{
		cc: cc,
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_probes_total", Help: "Probes by result.",
		}, []string{"result"}),
		probeTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fleetcache_probe_duration_seconds", Help: "Time that probes took.", Buckets: prometheus.ExponentialBuckets(0.005, 3, 8),
		}),
		connTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fleetcache_connect_duration_seconds", Help: "Time that attempts to connect took, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 8),
		}),
	}
}

// register makes the metrics known. Instances of one process get a number behind their name from the second on.
func (m *metrics) register(to prometheus.Registerer, name string) error {
	for i := range maxInstances {
		label := name
		if i > 0 {
			label = fmt.Sprintf("%s-%d", name, i+1)
		}
		r := prometheus.WrapRegistererWith(prometheus.Labels{"cache": label}, to)
		err := r.Register(m)
		if err == nil {
			m.registered = r
			return nil
		}
		if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); !taken {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return errors.New("register metrics: too many instances")
}

func (m *metrics) unregister() {
	if m.registered != nil {
		m.registered.Unregister(m)
	}
}

// probed counts one probe.
func (m *metrics) probed(began time.Time, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.probes.WithLabelValues(result).Inc()
	m.probeTook.Observe(time.Since(began).Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descClusters, descUp, descStale, descConnects, descResets, descInformer, descRefs, descObjects, descBytes, descStalls,
		descRejected, descExpiry, descSubs,
	} {
		out <- d
	}
	m.probes.Describe(out)
	m.probeTook.Describe(out)
	m.connTook.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	phases := map[Phase]int{
		PhasePending: 0, PhaseConnecting: 0, PhaseReady: 0, PhaseDegraded: 0, PhaseDisconnected: 0, PhaseRefused: 0, PhaseGone: 0,
	}
	for _, s := range m.cc.Statuses() {
		phases[s.Phase]++
		name := clusterName(s.Cluster)
		up := 0.0
		if s.Connected {
			up = 1
		}
		gauge(descUp, up, name)
		counter(descConnects, int64(s.Connects), name)
		counter(descResets, int64(s.HistoryResets), name)
		gauge(descInformer, float64(s.Informers), name)
		gauge(descRefs, float64(s.References), name)
		gauge(descObjects, float64(s.Objects), name)
		gauge(descBytes, float64(s.Bytes), name)
		counter(descStalls, s.Stalls, name)
		counter(descRejected, s.Rejected, name)
		if !s.OldestProof.IsZero() {
			gauge(descStale, time.Since(s.OldestProof).Seconds(), name)
		}
		if !s.CredentialExpiry.IsZero() {
			gauge(descExpiry, float64(s.CredentialExpiry.Unix()), name)
		}
	}
	for phase, n := range phases {
		gauge(descClusters, float64(n), string(phase))
	}
	gauge(descSubs, float64(m.cc.events.count()))
	m.probes.Collect(out)
	m.probeTook.Collect(out)
	m.connTook.Collect(out)
}
