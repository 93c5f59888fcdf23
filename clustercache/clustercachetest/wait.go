// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

const (
	// waitLimit is how long to wait before failing. Bubbles do not wait for it;
	// elsewhere nothing takes so long on the slowest machine.
	waitLimit = 2 * time.Minute
	// The interval between two checks grows from pollFirst to pollLast.
	pollFirst, pollLast = 2 * time.Millisecond, 100 * time.Millisecond
	pollLastInBubble    = 500 * time.Millisecond // where only the checks take time
)

// WaitSynced waits until the ClusterCache reflects the state of the fleet:
// reachable clusters are connected with the valid access, and every informer
// has everything that was written before the call; unreachable clusters are
// disconnected, and removed clusters are gone.
//
// WaitSynced waits for an informer only as far as it can advance: kinds may be
// stale, or not served, or not for watching, and requests may fail by
// [Cluster.Fail]. For a kind that is not served, it waits until that is
// detected. Event handlers may still be busy with earlier events. The test
// fails if it takes more than two minutes.
func (f *Fleet) WaitSynced() {
	f.t.Helper()
	cc := f.ClusterCache()
	f.wait(func() error {
		var errs []error
		known := map[string]bool{}
		for _, c := range f.all() {
			known[c.key.String()] = true
			if err := c.synced(cc); err != nil {
				errs = append(errs, fmt.Errorf("cluster %q: %w", c.key, err))
			}
		}

		for _, s := range cc.Statuses() {
			if !known[s.Cluster.String()] && s.Phase != status.PhaseGone {
				errs = append(errs, fmt.Errorf("cluster %q: removed, and %s", s.Cluster, s.Phase))
			}
		}
		return errors.Join(errs...)
	})
}

// WaitPhase waits until the cluster is in a phase. The test fails if it takes
// more than two minutes.
func (c *Cluster) WaitPhase(phase status.Phase) {
	c.fleet.t.Helper()
	cc := c.fleet.ClusterCache()
	c.fleet.wait(func() error {
		s, err := cc.Cluster(c.key).Status()
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("cluster %q is %s, not %s: %w", c.key, s.Phase, phase, orUnknown(s.LastError))
		}
		return err
	})
}

// WaitStale waits until Status reports the cluster as stale, or no longer does.
// It takes Options.StaleAfter, 3 min by default: outside a bubble set that in
// Options.Cache.
func (c *Cluster) WaitStale(stale bool) {
	c.fleet.t.Helper()
	cc := c.fleet.ClusterCache()
	c.fleet.waitFor(cc.Options().StaleAfter+waitLimit, func() error {
		s, err := cc.Cluster(c.key).Status()
		if err == nil && s.Stale != stale {
			err = fmt.Errorf("cluster %q: stale is %t; oldest sign of life at %s", c.key, s.Stale, s.OldestSeen)
		}
		return err
	})
}

// wait waits until left returns nil.
func (f *Fleet) wait(left func() error) {
	f.t.Helper()
	f.waitFor(waitLimit, left)
}

func (f *Fleet) waitFor(limit time.Duration, left func() error) {
	f.t.Helper()
	began, pause, last := time.Now(), pollFirst, pollLast
	if inBubble() {
		last = pollLastInBubble
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()

	for {
		err := left()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			f.t.Fatalf("clustercachetest: still after %s: %v", limit, err)
		}
		<-timer.C
		pause = min(pause*3/2, last)
		timer.Reset(pause)
	}
}

// synced returns the first difference between a ClusterCache and the cluster,
// or nil.
func (c *Cluster) synced(cc *clustercache.ClusterCache) error {
	status, err := cc.Cluster(c.key).Status()
	if err != nil {
		return err
	}
	c.mu.Lock()
	reach, revoked, failing := c.reach, c.revoked, len(c.faults) > 0
	c.mu.Unlock()

	if !reach || revoked {
		if status.Connected {
			return errors.New("still connected")
		}
		return nil
	}

	if !status.Connected {
		if failing && status.LastError != nil {
			return nil
		}
		return fmt.Errorf("%s: %w", status.Phase, orUnknown(status.LastError))
	}

	access, err := c.fleet.names.Resolve(context.Background(), c.key)
	if err != nil || status.Revision != access.Revision() || status.UID != c.server.UID() {
		return fmt.Errorf("access %.8s to cluster %s is in use, not %.8s to %s",
			status.Revision, status.UID, access.Revision(), c.server.UID())
	}
	watches, err := cc.Cluster(c.key).WatchStatuses()
	if err != nil {
		return err
	}
	for _, w := range watches {
		if err := c.caughtUp(w, status.Epoch); err != nil && (!failing || w.LastError == nil) {
			c.server.Bookmark()
			return errors.Join(fmt.Errorf("informer of %s: %w", w.GVK.Kind, err), w.LastError)
		}
	}

	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no error yet")
	}
	return err
}

// caughtUp returns nil if an informer is at the cluster's state, or cannot
// advance.
func (c *Cluster) caughtUp(w status.Watch, epoch string) error {
	i := w.Informer
	kind := func(k *fakeapi.Kind) bool { return k.GroupResource() == i.Key.Resource.GroupResource() }
	switch {
	case w.Mapped && c.server.Silent(kind), c.unservable(w):
		return nil // it never will be
	case !w.Mapped:
		return errors.New("kind not found yet")
	case !i.Synced:
		return errors.New("not synced")
	case string(i.Epoch) != epoch:
		return errors.New("of another epoch")
	case !slices.ContainsFunc(c.server.Watched(), func(r fakeapi.Request) bool { return follows(r, i.Key) }):
		return errors.New("no watch is open") // the informer may have reached this version in another history
	}

	want := c.server.Shown(kind)
	if is, _ := strconv.ParseInt(i.ResourceVersion, 10, 64); is != want {
		return fmt.Errorf("at resourceVersion %d of %d", is, want)
	}
	return nil
}

// unservable reports whether a watch has advanced as far as it can, since its
// kind is not served, or cannot be watched.
func (c *Cluster) unservable(w status.Watch) bool {
	if !w.Mapped && errors.Is(w.LastError, clustercache.ErrNotWatchable) {
		return true
	}
	if _, served := c.server.Objects(w.GVK); served {
		return false
	}
	if !w.Mapped {
		return meta.IsNoMatchError(w.LastError)
	}
	return apierrors.IsNotFound(w.LastError) && w.Informer.Objects == 0 // its deletes were delivered
}

// follows reports whether a request is the watch of an informer.
func follows(r fakeapi.Request, key informerpool.Key) bool {
	q, err := url.ParseQuery(r.Query)
	return err == nil && r.GroupResource() == key.Resource.GroupResource() && r.Namespace == key.Namespace &&
		q.Get("labelSelector") == key.LabelSelector && q.Get("fieldSelector") == key.FieldSelector
}
