// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

// RecorderOptions configure a Recorder. Controller is required; every other
// field has a usable zero value.
type RecorderOptions struct {
	// Controller is the reportingController of the events: the qualified name
	// of the controller, such as example.com/rollout. Required.
	Controller string
	// Instance is the reportingInstance: which replica of the controller.
	// Defaults to the host's name, which is a Pod's.
	Instance string
	// Waiting is how many events may wait for one cluster; further ones are
	// dropped. In all clusters, 64 times as many may. Defaults to 64.
	Waiting int
	// Concurrency is in how many clusters events are written at once. A write
	// that takes longer than a second is not counted. Defaults to 16.
	Concurrency int
	// Timeout bounds the write of an event. Defaults to 10 s.
	Timeout time.Duration
}

// withDefaults returns the options with every zero value replaced.
func (o RecorderOptions) withDefaults() (RecorderOptions, error) {
	var errs []error
	check := func(ok bool, field, msg string) {
		if !ok {
			errs = append(errs, &clustercache.OptionError{Field: "RecorderOptions." + field, Err: errors.New(msg)})
		}
	}
	check(len(validation.IsQualifiedName(o.Controller)) == 0, "Controller", "must be a qualified name")
	check(len(o.Instance) <= maxWord, "Instance", "longer than 128 bytes")
	check(o.Waiting >= 0, "Waiting", "negative")
	check(o.Concurrency >= 0, "Concurrency", "negative")
	check(o.Timeout == 0 || o.Timeout >= time.Millisecond, "Timeout", "less than a millisecond")
	o.Waiting = cmp.Or(o.Waiting, 64)
	o.Concurrency = cmp.Or(o.Concurrency, 16)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.Instance == "" {
		host, err := os.Hostname()
		check(err == nil, "Instance", "required: the host has no name")
		o.Instance = cut(host, maxWord)
	}

	return o, errors.Join(errs...)
}

// Recorder writes events into remote clusters. Recording an event never blocks:
// the event waits until a goroutine writes it, which ends when nothing waits
// for its cluster. Events within six minutes that differ in nothing but their
// note are one series, as those of client-go: the first is written, and then
// the count of the series at most once a minute, with the next of its events.
// The note stays that of the first.
//
// Events are a courtesy to people, not a log. They are dropped, and counted by
// their result, if the cluster is not connected or owned by another replica
// ("away"), if too many wait ("full"), if an object has more than 25 series at
// once, or further ones more often than each five minutes ("limited"), if the
// API server refuses one ("failed"), if one is not valid ("invalid"), and at the
// end of Start
// ("stopped"). A Recorder is the prometheus.Collector of that counter,
// fleetcache_recorded_events_total, for metrics.Registry.MustRegister.
//
// The credentials need the verbs create and patch of events in the group
// events.k8s.io. All methods may be called from many goroutines.
type Recorder struct {
	cc      *clustercache.ClusterCache
	options RecorderOptions
	results *prometheus.CounterVec
	workers workpool.Workers
	jobs    sync.WaitGroup
	between time.Duration // two writes of a series
	series  *lru.Cache    // of *series, by their occurrence; used under mu
	limits  *lru.Cache    // of *rate.Limiter, by subject; used under mu

	mu struct {
		sync.Mutex // protects the fields below; nothing else is locked under it

		ctx     context.Context //nolint:containedctx // that of Start, for the jobs
		stopped bool
		boxes   map[client.ObjectKey]*box // those with a job, or that wait for Start
		waiting int                       // events in all boxes
	}
}

var _ prometheus.Collector = (*Recorder)(nil)

// NewRecorder returns a recorder, which writes events once it is started: add
// it to the manager. It does no I/O. The error joins a
// [*clustercache.OptionError] for each option that is not valid.
func NewRecorder(cc *clustercache.ClusterCache, o RecorderOptions) (*Recorder, error) {
	o, err := o.withDefaults()
	if cc == nil {
		err = errors.Join(&clustercache.OptionError{Field: "cc", Err: errRequired}, err)
	}
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		cc:      cc,
		options: o,
		between: seriesUpdate,
		series:  lru.New(maxSeries),
		limits:  lru.New(maxSeries),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetcache_recorded_events_total",
			Help: "Events for remote clusters, by result: written, counted in a series, or why they were dropped.",
		}, []string{"result"}),
	}
	r.workers = workpool.NewWorkers(o.Concurrency, r.spawn)
	r.mu.boxes = map[client.ObjectKey]*box{}

	return r, nil
}

// For returns the recorder of a cluster, known or not. The objects that it is
// called with are those of that cluster. An event without an action has its
// reason as the action; texts that are too long are cut.
func (r *Recorder) For(cluster client.ObjectKey) events.EventRecorder {
	return &clusterRecorder{r: r, cluster: cluster}
}

type clusterRecorder struct {
	r       *Recorder
	cluster client.ObjectKey
}

// Eventf implements events.EventRecorder.
func (c *clusterRecorder) Eventf(
	regarding, related runtime.Object, eventType, reason, action, note string, args ...any,
) {
	options := c.r.cc.Options()
	o, err := newOccurrence(options.Scheme, c.cluster, regarding, related, eventType, reason, action)
	if err != nil {
		options.Logger.Error(err, "Event is not valid", "cluster", clustername.Of(c.cluster), "reason", reason)
		c.r.count("invalid", 1)
		return
	}
	c.r.record(o, cut(fmt.Sprintf(note, args...), maxNote))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: events are
// written by the replica in which they occurred.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start writes events until ctx ends. Then it drops those that wait, and
// returns once no write is under way. It is called once.
func (r *Recorder) Start(ctx context.Context) error {
	r.mu.Lock()
	r.mu.ctx = ctx
	early := slices.Collect(maps.Keys(r.mu.boxes))
	r.mu.Unlock()
	for _, cluster := range early {
		r.workers.Submit(func() { r.drain(cluster) })
	}

	<-ctx.Done()
	r.mu.Lock()
	r.mu.stopped = true
	left := r.mu.waiting
	r.mu.waiting = 0
	clear(r.mu.boxes)
	r.series.Clear()
	r.limits.Clear()
	r.mu.Unlock()
	r.count("stopped", left)
	r.jobs.Wait()

	return nil
}

// spawn starts a job, unless Start has ended.
func (r *Recorder) spawn(job func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.stopped {
		return false
	}
	r.jobs.Go(job)

	return true
}

func (r *Recorder) count(result string, n int) {
	if n > 0 {
		r.results.WithLabelValues(result).Add(float64(n))
	}
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) { r.results.Describe(ch) }

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) { r.results.Collect(ch) }
