// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

const (
	// stallLimit is how long a watch may be silent before it is ended: the API
	// server sends a bookmark every minute.
	stallLimit = 3 * time.Minute
	// requestLimit bounds a list, and the time until a watch has begun.
	requestLimit = 30 * time.Second
	// relistAfter is the number of watches in a row that may fail to begin,
	// while lists do not fail, before a list catches up on what they missed: in
	// that case the hub is up, and only watches fail.
	relistAfter = 3
)

// event is a report of a listWatch.
type event struct {
	from    *listWatch
	what    eventKind
	objects []client.Object
}

type eventKind int

const (
	eventList   eventKind = iota // objects are all that exist
	eventUpsert                  // objects were added or changed
	eventRemove                  // objects were removed
)

// listWatch follows one kind on the hub. It keeps no copy of its own.
type listWatch struct {
	hub    client.WithWatch
	kind   kind
	logger logr.Logger
	emit   func(context.Context, event)
	cancel context.CancelFunc
	failed int // watches in a row that did not begin; owned by run

	// Owned by the hubCache:
	id      objectID // of the only object, if it is one of hubCache.named
	heard   bool     // the first list has come
	dropped bool     // no answer depends on it any more
}

// run follows the kind until ctx ends.
func (w *listWatch) run(ctx context.Context) {
	backoff := newBackoff()
	version, failures := "", 0
	for ctx.Err() == nil {
		next, lively, err := w.once(ctx, version)
		version = next
		if lively {
			backoff, failures = newBackoff(), 0
		}
		if err == nil {
			continue
		}
		// Only the first failure in a row is logged at level 0.
		w.logger.V(min(failures, 1)).Info("cannot follow objects of the hub, will retry",
			"kind", w.kind.gvk.Kind, "error", err.Error())
		failures++
		timetable.Sleep(ctx, backoff.Step())
	}
}

// newBackoff goes from 0.2 to 30 seconds.
func newBackoff() wait.Backoff {
	return wait.Backoff{
		Duration: 200 * time.Millisecond,
		Factor:   2,
		Jitter:   0.5,
		Steps:    64,
		Cap:      20 * time.Second,
	}
}

// once lists if there is no version to resume from, and watches until the
// stream ends. It returns the version to resume from, whether the watch showed
// a sign of life, and the reason to wait before the next attempt, if there is
// one.
func (w *listWatch) once(ctx context.Context, version string) (string, bool, error) {
	fresh := version == ""
	if fresh {
		listed, err := w.list(ctx)
		if err != nil {
			return "", false, err
		}
		version = listed
	} else if behind, err := w.behind(ctx, version); err != nil || behind {
		if behind {
			version = ""
		}
		return version, false, err
	}

	version, lively, err := w.watch(ctx, version)
	if version == "" && !fresh {
		return "", lively, nil // a lost history is no trouble, unless a list does not help
	}
	return version, lively, err
}

func (w *listWatch) list(ctx context.Context) (string, error) {
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	objects, version, err := listAll(limited, w.hub, w.kind)
	if err != nil {
		return "", err
	}
	w.emit(ctx, event{from: w, what: eventList, objects: objects})

	return version, nil
}

// behind reports whether the hub is at an older version than the given one, as
// after etcd was restored from a snapshot. The API server accepts a watch from
// a future version, and then sends nothing until it reaches that version.
func (w *listWatch) behind(ctx context.Context, version string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	page := w.kind.list()
	options := w.kind.options()
	options.Limit = 1
	if err := w.hub.List(quiet(ctx), page, &options); err != nil {
		return false, err
	}
	order, err := resourceversion.CompareResourceVersion(page.GetResourceVersion(), version)
	if err != nil {
		return false, nil //nolint:nilerr // Versions that are not comparable say nothing about a rollback.
	}
	return order < 0, nil
}

// errQuiet indicates that a watch ended so soon that the next one should wait.
var errQuiet = errors.New("the watch ended at once")

// watch follows changes after version until the stream ends.
func (w *listWatch) watch(ctx context.Context, version string) (string, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := w.kind.options()
	// Between 5 and 10 minutes, so that not all watches of a process end
	// together.
	seconds := int64(300 + rand.IntN(300))
	options.Raw = &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	begun := time.Now()
	late := time.AfterFunc(requestLimit, cancel)
	stream, err := w.hub.Watch(quiet(ctx), w.kind.list(), &options)
	if !late.Stop() && err == nil {
		stream.Stop()
		err = context.DeadlineExceeded
	}
	if err != nil {
		if w.failed++; w.failed >= relistAfter {
			return "", false, err
		}
		return resumeAfter(version, err), false, err
	}

	w.failed = 0
	defer stream.Stop()
	version, frames, err := w.follow(ctx, stream, version)
	if err == nil && frames == 0 && time.Since(begun) < time.Second {
		err = errQuiet
	}

	return version, frames > 0, err
}

// follow reports the events of a stream.
func (w *listWatch) follow(ctx context.Context, stream watch.Interface, version string) (string, int, error) {
	stall := time.NewTimer(stallLimit)
	defer stall.Stop()
	for frames := 0; ; frames++ {
		var got watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return version, frames, nil
		case <-stall.C:
			return version, frames, nil
		case got, open = <-stream.ResultChan():
		}

		if !open {
			return version, frames, nil
		}
		stall.Reset(stallLimit)
		if got.Type == watch.Error {
			err := apierrors.FromObject(got.Object)
			return resumeAfter(version, err), frames, err
		}
		object, ok := got.Object.(client.Object)
		if !ok {
			continue
		}
		version = object.GetResourceVersion()
		switch got.Type {
		case watch.Added, watch.Modified:
			w.emit(ctx, event{from: w, what: eventUpsert, objects: []client.Object{object}})
		case watch.Deleted:
			w.emit(ctx, event{from: w, what: eventRemove, objects: []client.Object{object}})
		}
	}
}

// resumeAfter returns "" if a new list is needed after err.
func resumeAfter(version string, err error) string {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInvalid(err) {
		return ""
	}
	return version
}
