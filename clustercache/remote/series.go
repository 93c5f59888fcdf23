// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

const (
	// seriesPause ends a series.
	seriesPause = 6 * time.Minute
	// seriesUpdate is the shortest time between two writes of a series.
	seriesUpdate = time.Minute
	// maxSeries bounds the series that are remembered.
	maxSeries = 1024
	// allWaiting is how many times as many events may wait in all clusters as
	// in one.
	allWaiting = 64
)

// box has the events that wait for one cluster. Its job writes them one by one.
type box struct{ queue []*series }

// series are equal events, of which no two are further apart than seriesPause.
type series struct {
	of          occurrence
	note        string // of the first
	count       int32
	first, last time.Time
	written     time.Time
	name        string // of the event in the cluster; empty until it is written
	queued      bool   // in its cluster's box
}

// record counts an occurrence, and queues the write that it needs.
func (r *Recorder) record(o occurrence, note string) {
	r.mu.Lock()
	result, start := r.recordLocked(o, note, time.Now())
	r.mu.Unlock()

	if result != "" {
		r.count(result, 1)
	}
	if start {
		r.workers.Submit(func() { r.drain(o.cluster) })
	}
}

// recordLocked returns the result, if it is known already, and whether the
// cluster needs a job.
func (r *Recorder) recordLocked(o occurrence, note string, now time.Time) (result string, start bool) {
	if r.mu.stopped {
		return "stopped", false
	}
	known, _ := r.series.Get(o)
	s, _ := known.(*series)
	if s != nil && now.Sub(s.last) < seriesPause {
		if s.count < math.MaxInt32 {
			s.count++
		}
		s.last = now
		if s.queued || s.name != "" && now.Sub(s.written) < r.between {
			return "counted", false
		}
	} else {
		if !r.allow(subject{o.cluster, o.regarding}, now) {
			return "limited", false
		}
		s = &series{
			of:    o,
			note:  note,
			count: 1,
			first: now,
			last:  now,
		}
	}

	b := r.mu.boxes[o.cluster]
	if b != nil && len(b.queue) >= r.options.Waiting || r.mu.waiting/allWaiting >= r.options.Waiting {
		return "full", false
	}
	if b == nil {
		b = &box{}
		r.mu.boxes[o.cluster] = b
		start = r.mu.ctx != nil
	}
	b.queue = append(b.queue, s)
	r.mu.waiting++
	s.queued = true
	r.series.Add(o, s)

	return "", start
}

// drain is the job of a cluster: it writes what waits.
func (r *Recorder) drain(cluster client.ObjectKey) {
	for {
		ctx, s, event := r.next(cluster)
		if s == nil {
			return
		}
		name, err := r.write(ctx, cluster, event)
		switch {
		case err == nil:
			r.written(s, name)
			r.count("written", 1)
		case isAway(err):
			r.count("away", 1+r.giveUp(cluster))
			return
		default:
			if event.Series == nil { // once for each series
				r.cc.Options().Logger.Info("Event was not written", "cluster", clustername.Of(cluster),
					"reason", event.Reason, "error", err.Error())
			}
			r.count("failed", 1)
		}
	}
}

// isAway reports whether no event can be written to the cluster for now.
func isAway(err error) bool {
	for _, away := range []error{
		clustercache.ErrNotConnected, clustercache.ErrUnknownCluster, clustercache.ErrNotOwner, clustercache.ErrClosed,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, away) {
			return true
		}
	}
	return false
}

// next takes a series from a cluster's box, and returns its event as it is now.
// Without one it ends the box.
func (r *Recorder) next(cluster client.ObjectKey) (ctx context.Context, s *series, event *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	b := r.mu.boxes[cluster]
	if b == nil || len(b.queue) == 0 {
		delete(r.mu.boxes, cluster)
		return nil, nil, nil
	}
	s = b.queue[0]
	b.queue = b.queue[1:]
	r.mu.waiting--
	s.queued = false
	event = s.of.event(r.options, s.note, s.first)
	event.Name = s.name
	if s.count > 1 {
		event.Series = &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
	}

	return r.mu.ctx, s, event
}

// written records that an event was written.
func (r *Recorder) written(s *series, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.name, s.written = name, time.Now()
}

// giveUp ends a cluster's box, and returns how many events were in it.
func (r *Recorder) giveUp(cluster client.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()

	b := r.mu.boxes[cluster]
	if b == nil { // Start has ended
		return 0
	}
	for _, s := range b.queue {
		s.queued = false
	}
	delete(r.mu.boxes, cluster)
	r.mu.waiting -= len(b.queue)

	return len(b.queue)
}

// write writes an event, and returns its name. The event of a series that the
// cluster does not have any more is created again.
func (r *Recorder) write(ctx context.Context, cluster client.ObjectKey, event *eventsv1.Event) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	c, err := r.cc.Cluster(cluster).Client()
	if err != nil {
		return "", err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return "", err
	}
	u := &unstructured.Unstructured{Object: content} // the scheme may lack events
	unread := client.DisableReadYourWritesConsistency

	if event.Name != "" {
		raw, err := json.Marshal(map[string]any{"series": event.Series})
		if err != nil {
			return "", err
		}
		err = c.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, raw), unread)
		if !apierrors.IsNotFound(err) {
			return event.Name, err
		}
		u.SetName("")
	}
	if err := c.Create(ctx, u, unread); err != nil {
		return "", err
	}

	return u.GetName(), nil
}
