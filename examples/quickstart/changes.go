// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

var colors = client.ObjectKey{Namespace: demoNamespace, Name: "colors"}

// arrive shows that the objects that existed before the operator arrive.
func (s *localStory) arrive(ctx context.Context) error {
	for _, r := range s.remotes() {
		took, err := s.Await(ctx, story.Patience, r.Name()+" Ready with five objects reconciled", func() error {
			now, err := s.clusters().Cluster(r.key).Status()
			objects, _, _ := s.journal.counts(r.key)
			if err != nil || now.Phase != status.PhaseReady || now.Synced != 2 || objects != 5 {
				return fmt.Errorf("phase %q, %d informers synced, %d objects, %w",
					now.Phase, now.Synced, objects, errors.Join(err, now.LastError))
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.OK("%s is Ready, and its five objects are reconciled (waited %s)", r.Name(), story.Brief(took))
	}
	for _, r := range s.remotes() {
		var asked traffic
		_, err := s.Await(ctx, story.Patience, "the watches of "+r.Name(), func() (err error) {
			if asked, err = r.traffic("configmaps", "widgets"); err == nil && asked.watches < 2 {
				err = fmt.Errorf("%s so far", asked) // where lists are not streamed, a watch begins a moment later
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := s.Expect(asked == traffic{lists: 2, watches: 2},
			r.Name()+" was asked for one list and one watch of each kind",
			"its "+s.Record()+" has "+asked.String()); err != nil {
			return err
		}
	}
	s.showClusters()
	return nil
}

// change shows an update in one remote cluster and a delete in the other.
func (s *localStory) change(ctx context.Context) error {
	took, err := s.paint(ctx, s.east, "green")
	if err != nil {
		return err
	}
	s.OK("the update in east was reconciled %s after it was sent", story.Brief(took))

	begin := time.Now()
	if err := s.west.Client().Delete(ctx, widget("valve", 0)); err != nil {
		return err
	}
	_, err = s.Await(ctx, story.Patience, "Widget valve of west reconciled as gone", func() error {
		if s.journal.look(s.west.ask(widgetKind, "valve")) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.OK("the delete in west was reconciled %s after it was sent", story.Brief(time.Since(begin)))

	read, origin := &corev1.ConfigMap{}, clustercache.Origin{}
	begin = time.Now()
	err = s.clusters().Cluster(s.east.key).Reader().Get(ctx, colors, read, &origin)
	if err := s.Expect(err == nil && read.Data["door"] == "green" && origin.Cached,
		"a read of east answers the new state, from the cache",
		fmt.Sprintf("door %q, cached %t, error %v, took %s",
			read.Data["door"], origin.Cached, err, story.Brief(time.Since(begin)))); err != nil {
		return err
	}
	gone := s.clusters().Cluster(s.west.key).Reader().Get(ctx,
		client.ObjectKey{Namespace: demoNamespace, Name: "valve"},
		widget("", 0))
	return s.Expect(apierrors.IsNotFound(gone), "a read of the deleted Widget answers NotFound", fmt.Sprint(gone))
}

// paint writes another color into a remote cluster, and waits until that was
// reconciled.
func (s *localStory) paint(ctx context.Context, r *remote, color string) (time.Duration, error) {
	begin := time.Now()
	if err := r.Client().Update(ctx, configMap(colors.Name, "door", color)); err != nil {
		return 0, err
	}
	_, err := s.Await(ctx, story.Patience, "the update of ConfigMap colors in "+r.Name()+" reconciled", func() error {
		seen := s.journal.look(r.ask(configMapKind, colors.Name))
		if seen == nil || content(seen) != fmt.Sprintf("{%q:%q}", "door", color) {
			return errors.New("the reconciler has not seen it")
		}
		return nil
	})
	return time.Since(begin), err
}

// kill shows that when one remote cluster dies, reads of it return errors, and
// the other one is not affected.
func (s *localStory) kill(ctx context.Context) error {
	if err := s.east.Kill(); err != nil { //nolint:contextcheck // a kill waits for nothing
		return err
	}
	killed := time.Now()
	s.Say("%s", s.killed())
	took, err := s.paint(ctx, s.west, "blue")
	if err != nil {
		return err
	}
	s.OK("an update in west was reconciled %s after it was sent", story.Brief(took))

	refusal, west, err := s.readUntilRefused(ctx)
	if err != nil {
		return err
	}
	noticed := time.Since(killed)
	s.Say("a read of east: %v", refusal)
	failed, typed := errors.AsType[*clustercache.ClusterError](refusal)
	if err := s.Expect(typed && failed.Cluster == s.east.key,
		"the error is a ClusterError of east, and errors.Is ErrNotConnected",
		fmt.Sprintf("%s after the kill", story.Brief(noticed))); err != nil {
		return err
	}
	slices.Sort(west)
	slowest := west[len(west)-1]
	if err := s.Expect(slowest < probeTimeout,
		fmt.Sprintf("all %d reads of west meanwhile were answered from its cache", len(west)),
		fmt.Sprintf("median %s, slowest %s", story.Brief(west[len(west)/2]), story.Brief(slowest))); err != nil {
		return err
	}
	last := &corev1.ConfigMap{}
	err = s.clusters().Cluster(s.east.key).Reader().Get(ctx, colors, last, clustercache.CacheOnly,
		clustercache.MaxStaleness(time.Hour))
	if err := s.Expect(err == nil && last.Data["door"] == "green",
		"a read of east that accepts what is an hour old answers its last known state",
		fmt.Sprintf("door %q, error %v", last.Data["door"], err)); err != nil {
		return err
	}
	s.showClusters()
	return nil
}

// readUntilRefused reads both remote clusters repeatedly, until a read of east
// fails as it should. It returns that error, and how long each read of west
// took.
func (s *localStory) readUntilRefused(ctx context.Context) (refusal error, west []time.Duration, err error) {
	tick := time.NewTicker(story.Look)
	defer tick.Stop()
	for begin := time.Now(); ; {
		at := time.Now()
		err := s.clusters().Cluster(s.west.key).Reader().Get(ctx, colors, &corev1.ConfigMap{}, clustercache.CacheOnly)
		if err != nil {
			return nil, nil, &story.UnmetError{Expected: "reads of west answered while east is down", Got: err.Error()}
		}
		west = append(west, time.Since(at))
		refusal = s.clusters().Cluster(s.east.key).Reader().Get(ctx, colors, &corev1.ConfigMap{})
		switch {
		case errors.Is(refusal, clustercache.ErrNotConnected):
			return refusal, west, nil
		case refusal != nil:
			return nil, nil, &story.UnmetError{
				Expected: "a read of the dead cluster to fail with ErrNotConnected",
				Got:      refusal.Error(),
			}
		case time.Since(begin) > probeBound:
			return nil, nil, &story.UnmetError{
				Expected: "reads of the dead cluster to fail within " + probeBound.String(),
				Got:      "an answer",
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
