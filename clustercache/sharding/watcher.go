// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

const (
	// listTimeout bounds a list of Leases, and the time until a watch begins.
	listTimeout = 10 * time.Second
	// watchDuration is when a watch is begun anew.
	watchDuration = 10 * time.Minute
	// retryMin and retryMax bound the wait after a failure. It is short, since
	// nothing is owned until the hub is back.
	retryMin, retryMax = 200 * time.Millisecond, 2 * time.Second
)

// watcher follows the Leases of the group. It lists consistently, never from a
// server's cache, so that what it shows never goes back.
type watcher struct {
	*Sharding
	refresh chan struct{} // lists again at once
	version string        // where the watch resumes; empty to list
}

// run follows the Leases until ctx ends.
func (w *watcher) run(ctx context.Context) {
	wait := retryMin
	for ctx.Err() == nil {
		cycle, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-w.refresh:
				cancel()
			case <-cycle.Done():
			}
		}()
		err := w.once(cycle)
		refreshed := cycle.Err() != nil
		cancel()
		<-done

		switch {
		case refreshed:
			w.version, wait = "", retryMin
		case err == nil: // the stream ended; not at once again, if that is all it does
			wait = retryMin
			w.sleep(ctx, wait)
		default:
			w.log.V(1).Info("cannot follow leases, will retry", "error", err.Error())
			w.sleep(ctx, wait/2+rand.N(wait/2))
			wait = min(2*wait, retryMax)
		}
	}
}

// sleep waits for d, or less if a refresh is asked for.
func (w *watcher) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-w.refresh:
		w.version = ""
	case <-time.After(d):
	}
}

// once lists, if there is no version to resume from, and watches until the
// stream ends.
func (w *watcher) once(ctx context.Context) error {
	selector := labels.Set{groupLabel: w.options.Name}.String()
	if w.version == "" {
		limited, cancel := context.WithTimeout(ctx, listTimeout)
		list, err := w.leases.List(limited, metav1.ListOptions{LabelSelector: selector})
		cancel()
		if err != nil {
			return err
		}
		all := make([]protocol.Lease, 0, len(list.Items))
		for i := range list.Items {
			if l, ok := decode(&list.Items[i]); ok {
				all = append(all, l)
			}
		}
		w.post(ctx, func(now time.Time) { w.replica.Replace(now, all) })
		w.version = list.ResourceVersion
	}

	stream, err := w.leases.Watch(ctx, metav1.ListOptions{
		LabelSelector:       selector,
		ResourceVersion:     w.version,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      new(int64(watchDuration / time.Second)),
	})
	if err != nil {
		w.version = ""
		return err
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if err := w.handle(ctx, e); err != nil {
			w.version = ""
			return err
		}
	}
	return nil
}

func (w *watcher) handle(ctx context.Context, e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	object, ok := e.Object.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("watch of leases shows %T", e.Object)
	}
	if object.ResourceVersion == "" {
		return errors.New("watch of leases shows no resourceVersion")
	}

	w.version = object.ResourceVersion
	l, ours := decode(object)
	switch {
	case !ours || e.Type == watch.Bookmark:
	case e.Type == watch.Deleted:
		w.post(ctx, func(time.Time) { w.replica.Forget(l) })
	default:
		w.post(ctx, func(now time.Time) { w.replica.Observe(now, l) })
	}
	return nil
}
