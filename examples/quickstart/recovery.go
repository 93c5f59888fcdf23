// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// cut shows that watches continue where they were after the connection to a
// remote cluster is reset and refused for a moment.
func (s *localStory) cut(ctx context.Context) error {
	before, err := s.west.traffic("configmaps", "widgets")
	if err != nil {
		return err
	}
	configMaps, widgets, err := s.informers(ctx, s.west)
	if err != nil {
		return err
	}
	_, _, unchanged := s.journal.counts(s.west.key)
	s.road.Refuse()
	s.Say("the connection is reset, and while there is none a ConfigMap is created")
	err = s.west.Client().Create(ctx, configMap("meanwhile", "text", "nobody was watching"))
	if err := errors.Join(err, s.road.Heal()); err != nil {
		return err
	}
	if _, err := s.arrived(ctx, s.west.ask(configMapKind, "meanwhile")); err != nil {
		return err
	}
	_, err = s.Await(ctx, story.Patience, "both watches of west resumed", func() error {
		c, w, err := s.informers(ctx, s.west)
		if err == nil && (c.Resumes == configMaps.Resumes || w.Resumes == widgets.Resumes) {
			err = fmt.Errorf("resumed %d and %d times", c.Resumes-configMaps.Resumes, w.Resumes-widgets.Resumes)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.OK("what was created meanwhile arrived, and both watches were resumed")
	after, err := s.west.traffic("configmaps", "widgets")
	if err != nil {
		return err
	}
	if err := s.Expect(after.lists == before.lists, "nothing was listed again",
		fmt.Sprintf("west's %s had %s, and has %s", s.Record(), before, after)); err != nil {
		return err
	}
	// A probe that met the cut has made it Degraded until the next one succeeds.
	if _, err := s.readyAgain(ctx, s.west); err != nil {
		return err
	}
	status, err := s.clusters().Cluster(s.west.key).Status()
	if err != nil {
		return err
	}
	_, _, now := s.journal.counts(s.west.key)
	return s.Expect(status.Connects == 1 && now == unchanged,
		"west was connected all the time, and no event for unchanged objects",
		fmt.Sprintf("%d connect, %d events without a change", status.Connects, now-unchanged))
}

// readyAgain waits until the cluster is Ready, and returns how long that took.
func (s *localStory) readyAgain(ctx context.Context, r *remote) (time.Duration, error) {
	return s.Await(ctx, story.Patience, r.Name()+" Ready again", func() error {
		now, err := s.clusters().Cluster(r.key).Status()
		if err == nil && now.Phase != status.PhaseReady {
			err = fmt.Errorf("phase %s: %w", now.Phase, now.LastError)
		}
		return err
	})
}

// restart shows that only changes are delivered when the dead remote cluster
// comes back.
func (s *localStory) restart(ctx context.Context) error {
	objects, reports, unchanged := s.journal.counts(s.east.key)
	done := s.Working("starting east's API server again, at the same address and with the same data")
	err := s.east.StartAPIServer(ctx)
	done()
	if err != nil {
		return err
	}
	took, err := s.readyAgain(ctx, s.east)
	if err != nil {
		return err
	}
	s.OK("east is Ready again, %s after its API server was", story.Brief(took))
	for _, obj := range []client.Object{configMap("back", "text", "after the restart"), widget("spare", 1)} {
		if err := s.east.Client().Create(ctx, obj); err != nil {
			return err
		}
	}
	for _, r := range []request{s.east.ask(configMapKind, "back"), s.east.ask(widgetKind, "spare")} {
		if _, err := s.arrived(ctx, r); err != nil {
			return err
		}
	}
	configMaps, widgets, err := s.informers(ctx, s.east)
	if err != nil {
		return err
	}
	s.Say("its informers' resumes: %d, lists anew: %d (an API server that restarts may have forgotten its history)",
		configMaps.Resumes+widgets.Resumes, configMaps.Resyncs+widgets.Resyncs)
	_, reportsNow, unchangedNow := s.journal.counts(s.east.key)
	if err := s.Expect(reportsNow == reports+2 && unchangedNow == unchanged,
		fmt.Sprintf("the two new objects were reported, and none of the %d that had not changed", objects),
		fmt.Sprintf("%d reconciliations since the kill", reportsNow-reports)); err != nil {
		return err
	}
	s.showClusters()
	return nil
}

// tearDown shows that users of an informer are counted, and that it ends some
// time after the last one has released it.
func (s *localStory) tearDown(ctx context.Context) error {
	var held []*clustercache.Watch
	defer func() {
		for _, w := range held {
			w.Release()
		}
	}()
	// Three more users: two of a kind that is not watched yet, one of a kind
	// that the operator watches already.
	for _, kind := range []client.Object{&corev1.Namespace{}, &corev1.Namespace{}, &corev1.ConfigMap{}} {
		var options []client.ListOption
		if _, ok := kind.(*corev1.ConfigMap); ok {
			options = append(options, client.InNamespace(demoNamespace))
		}
		w, err := s.clusters().Cluster(s.west.key).Watch(ctx, kind, options...)
		if err != nil {
			return err
		}
		held = append(held, w)
		if err := w.WaitForSync(ctx); err != nil {
			return err
		}
	}
	if err := s.countInformers(3,
		"three more users, two of Namespaces and one of ConfigMaps, need one more informer"); err != nil {
		return err
	}
	s.showClusters()
	for _, w := range held {
		w.Release()
	}
	released := time.Now()
	if err := s.countInformers(3,
		fmt.Sprintf("released, it stays for %s, so that coming back soon costs nothing", linger)); err != nil {
		return err
	}
	_, err := s.Await(ctx, linger+story.Patience, "the informer of Namespaces to end", func() error {
		status, err := s.clusters().Cluster(s.west.key).Status()
		if err == nil && status.Informers != 2 {
			err = fmt.Errorf("%d informers", status.Informers)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.OK("it is gone, %s after the last user; those of the operator run on", story.Brief(time.Since(released)))
	took, err := s.paint(ctx, s.west, "white")
	if err != nil {
		return err
	}
	s.OK("an update in west was reconciled %s after it was sent", story.Brief(took))
	return nil
}

// countInformers expects a number of informers in west.
func (s *localStory) countInformers(want int, expected string) error {
	status, err := s.clusters().Cluster(s.west.key).Status()
	if err != nil {
		return err
	}
	return s.Expect(status.Informers == want, expected, fmt.Sprintf("%d informers in west", status.Informers))
}
