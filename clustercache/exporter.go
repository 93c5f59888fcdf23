// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/callback"
)

// maxInstances bounds the search for a free name of the label "cache".
const maxInstances = 1000

// descs are all that describe returned.
var descs []*prometheus.Desc

// describe returns the description of a metric. The label "cache" distinguishes
// instances in one process.
func describe(name, help string, labels ...string) *prometheus.Desc {
	descs = append(descs, prometheus.NewDesc("fleetcache_"+name, help, labels, nil))
	return descs[len(descs)-1]
}

// Descriptions of the metrics that are computed at each scrape. The series of a
// cluster end with the cluster.
var (
	descClusters = describe("clusters", "Known clusters by phase.", "phase")
	descUp       = describe("cluster_up", "Whether the cluster is connected.", "cluster")
	descReason   = describe("cluster_reason",
		"Always 1. The label is why the cluster is not connected, or what fails while it is.", "cluster", "reason")
	descTwins = describe("clusters_reached_twice",
		"Known clusters whose server another key leads to as well, by its UID.")
	descStale = describe("cluster_staleness_seconds",
		"Seconds since the least recently active informer heard from its server.", "cluster")
	descConnects = describe("connects_total", "Connections made, the first one included.", "cluster")
	descResets   = describe("history_resets_total",
		"Times that another history was found: another cluster, or a rolled back one.", "cluster")
	descInformer = describe("informers", "Informers that run.", "cluster")
	descUnsynced = describe("informers_unsynced",
		"Informers of connected clusters that do not answer reads: they have not listed yet, are refused, or stale.")
	descUnmapped = describe("watches_unmapped",
		"Watches of kinds that their cluster does not serve, "+
			"or whose discovery has not been queried yet, in all clusters.")
	descRefs     = describe("informer_references", "Leases held on informers.", "cluster")
	descObjects  = describe("cached_objects", "Objects in the cache.", "cluster")
	descBytes    = describe("cached_bytes", "Approximate memory of the cached objects.", "cluster")
	descStalls   = describe("watch_stalls_total", "Streams cut because nothing came.", "cluster")
	descRejected = describe("rejected_objects_total", "Objects refused as broken.", "cluster")
	descExpiry   = describe("credential_expiry_timestamp_seconds",
		"When the credentials in use end, where that is known.", "cluster")
	descOwners   = describe("declaring_owners", "Owners that use something they declared.")
	descDeclared = describe("declared_watches",
		"Things that are watched because owners declared them, or did within the grace.")
	descSubs     = describe("event_subscribers", "Subscriptions to events of clusters and of objects.")
	descLists    = describe("list_requests_total", "Requests for lists that are not streamed, in all clusters.")
	descWatches  = describe("watch_requests_total", "Requests for watches and streamed lists, in all clusters.")
	descResumes  = describe("watch_resumes_total", "Watches that went on where an earlier one ended, in all clusters.")
	descRestores = describe("restores_total",
		"Informers that began with a state that an earlier process kept, in all clusters.")
	descResyncs = describe("resyncs_total", "Lists of informers that had listed before, in all clusters.")
	descAudits  = describe("audits_total",
		"Comparisons of caches with their servers, in all clusters: equal, different, or failed.", "result")
	descShared = describe("sharding_clusters",
		"Listed clusters by what this replica has to do with them, if replicas share them: "+
			"owned, draining, standby, or other.", "state")
	descMoves = describe("sharding_moves_total",
		"Slots that this replica has gained and lost, if replicas share the clusters.", "change")
	descBuild = describe("build_info", "Always 1. The labels are the versions that run.", "version", "go_version")
)

// exporter is the collector of all metrics.
type exporter struct {
	cc         *ClusterCache
	registered prometheus.Registerer // where to unregister; nil: nowhere
	version    string
}

var _ prometheus.Collector = (*exporter)(nil)

// version returns the version of this module in the running program.
func version() string {
	const module = "github.com/fleetcache/fleetcache"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

// register registers the metrics. From the second on, instances in one process
// get a number appended to their name.
func (e *exporter) register(to prometheus.Registerer, name string) error {
	for i := range maxInstances {
		label := name
		if i > 0 {
			label = fmt.Sprintf("%s-%d", name, i+1)
		}
		r := prometheus.WrapRegistererWith(prometheus.Labels{"cache": label}, to)
		err := e.cc.calls.Call("Options.MetricsRegisterer", func() error { return r.Register(e) })
		if err == nil {
			e.registered = r
			if i > 0 {
				e.cc.log.Info("Another cluster cache of this process has the same name; set Options.Name, "+
					"since their checks, too, are told apart by it", "name", name, "metrics", label)
			}
			return nil
		}
		if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); !taken {
			return fmt.Errorf("register metrics: %w", err)
		}
	}

	return errors.New("register metrics: too many instances")
}

func (e *exporter) unregister() {
	if e.registered != nil {
		_ = e.cc.calls.Call("Options.MetricsRegisterer", func() error {
			e.registered.Unregister(e)
			return nil
		})
	}
}

// counted returns the metrics that are counted as things happen, and those of
// Options.Persist and Options.Sharding.
func (e *exporter) counted() []prometheus.Collector {
	m := e.cc.metrics
	counted := []prometheus.Collector{
		m.probes, m.probeTook, m.connTook, m.connFailed, m.listTook, m.indexFailed, m.outdated, m.panics,
	}
	if e.cc.keeper != nil {
		counted = append(counted, e.cc.keeper.Collectors()...)
	}
	if c, ok := e.cc.options.Sharding.(prometheus.Collector); ok {
		counted = append(counted, c)
	}
	return counted
}

// Describe implements prometheus.Collector.
func (e *exporter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descs {
		out <- d
	}

	for _, c := range e.counted() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector. It never ends the process: a failed
// scrape must not stop the operator.
func (e *exporter) Collect(ch chan<- prometheus.Metric) {
	defer func() {
		if v := recover(); v != nil {
			callback.Log(e.cc.log, callback.Caught("Collect", v), "Metrics cannot be collected")
		}
	}()
	out := sink{ch: ch}
	statuses := e.cc.Statuses()
	phases := map[status.Phase]int{}
	unsynced, unmapped, twins := 0, 0, 0
	for _, s := range statuses {
		phases[s.Phase]++
		if s.Connected {
			unsynced += s.Informers - s.Synced
		}
		unmapped += s.Unmapped
		twins += int(boolean(len(s.SameAs) > 0))
		if !e.cc.options.FleetMetricsOnly {
			out.gauge(descUp, boolean(s.Connected), clusterName(s.Cluster))
			if !s.Connected || s.Reason != "" {
				out.gauge(descReason, 1, clusterName(s.Cluster), s.Reason)
			}
			out.counter(descConnects, int64(s.Connects), clusterName(s.Cluster))
			out.counter(descResets, int64(s.HistoryResets), clusterName(s.Cluster))
			out.cluster(clusterName(s.Cluster), s)
		}
	}

	totals := e.cc.pool.Totals()
	if e.cc.options.FleetMetricsOnly {
		sum := sumUp(statuses)
		sum.Stalls, sum.Rejected = totals.Stalls, totals.Rejected // including clusters that are gone
		out.cluster("", sum)
	}
	for _, phase := range status.Phases() {
		out.gauge(descClusters, float64(phases[phase]), string(phase))
	}
	out.gauge(descUnsynced, float64(unsynced))
	out.gauge(descTwins, float64(twins))
	out.gauge(descUnmapped, float64(unmapped))
	out.counter(descLists, totals.Lists)
	out.counter(descWatches, totals.Watches)
	out.counter(descResumes, totals.Resumes)
	out.counter(descRestores, totals.Restores)
	out.counter(descResyncs, totals.Resyncs)
	out.counter(descAudits, totals.Audits, "equal")
	out.counter(descAudits, totals.AuditDifferences, "different")
	out.counter(descAudits, totals.AuditFailures, "failed")
	out.gauge(descSubs, float64(e.cc.events.count()+len(e.cc.subscribed.started())))
	owners, _ := e.cc.declared.collector.Len()
	out.gauge(descOwners, float64(owners))
	out.gauge(descDeclared, float64(e.cc.declared.count()))
	e.shared(out, statuses)
	out.gauge(descBuild, 1, e.version, runtime.Version())
	for _, c := range e.counted() {
		c.Collect(ch)
	}
}

// shared sends what is shared with other replicas: of the clusters that the
// resolver lists, or of those that are known without Options.Discover.
func (e *exporter) shared(out sink, known []status.Cluster) {
	tenure := e.cc.tenure
	if tenure == nil {
		return
	}
	clusters := map[string]int{
		"owned":    0,
		"draining": 0,
		"standby":  0,
		"other":    0,
	}
	if last := e.cc.clusters.listing.clusters(); last != nil {
		for key := range last {
			clusters[ownershipOf(tenure.State(key))]++
		}
	} else {
		for _, s := range known {
			clusters[ownershipOf(s.Ownership)]++
		}
	}

	for state, n := range clusters {
		out.gauge(descShared, float64(n), state)
	}
	moves := tenure.Moves()
	out.counter(descMoves, moves.Gained, "gained")
	out.counter(descMoves, moves.Lost, "lost")
}

// sumUp returns one status of all clusters: sums, and the worst of the values
// that cannot be summed.
func sumUp(statuses []status.Cluster) status.Cluster {
	var sum status.Cluster
	for _, s := range statuses {
		sum.Informers += s.Informers
		sum.References += s.References
		sum.Objects += s.Objects
		sum.Bytes += s.Bytes
		sum.OldestSeen = earlier(sum.OldestSeen, s.OldestSeen)
		sum.CredentialExpiry = earlier(sum.CredentialExpiry, s.CredentialExpiry)
	}

	return sum
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sink receives the metrics of a scrape.
type sink struct{ ch chan<- prometheus.Metric }

func (out sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	out.send(d, prometheus.GaugeValue, v, labels)
}

func (out sink) counter(d *prometheus.Desc, v int64, labels ...string) {
	out.send(d, prometheus.CounterValue, float64(v), labels)
}

// send omits a series whose labels are invalid; the others stay.
func (out sink) send(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	if m, err := prometheus.NewConstMetric(d, t, v, labels...); err == nil {
		out.ch <- m
	}
}

// cluster sends the series of a cluster that also exist once for all clusters.
func (out sink) cluster(name string, s status.Cluster) {
	out.gauge(descInformer, float64(s.Informers), name)
	out.gauge(descRefs, float64(s.References), name)
	out.gauge(descObjects, float64(s.Objects), name)
	out.gauge(descBytes, float64(s.Bytes), name)
	out.counter(descStalls, s.Stalls, name)
	out.counter(descRejected, s.Rejected, name)
	if !s.OldestSeen.IsZero() {
		out.gauge(descStale, time.Since(s.OldestSeen).Seconds(), name)
	}
	if !s.CredentialExpiry.IsZero() {
		out.gauge(descExpiry, float64(s.CredentialExpiry.Unix()), name)
	}
}
