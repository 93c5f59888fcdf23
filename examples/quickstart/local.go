// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/informerpool"
)

// localStory is the demonstration on clusters that run on this machine, which
// it can change and break.
type localStory struct {
	demo
	*localFleet
}

// tellLocal starts a hub and two remote clusters, runs the operator, and shows
// what happens.
func tellLocal(ctx context.Context, set settings, out *story.Printer, log logr.Logger) (err error) {
	f, err := startFleet(ctx, set.local, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := f.furnish(ctx); err != nil {
		return err
	}
	out.Say("each remote has objects now, and the hub a Secret with the kubeconfig of each, as Cluster API makes them")

	access, err := clusterAPI(f.Hub.Config(), fleetNamespace, log)
	if err != nil {
		return err
	}
	j := newJournal(out, true)
	operator, err := newOperator(f.Hub.Config(), access, demoSelection(), j.report, log)
	if err != nil {
		return err
	}
	s := &localStory{demo: newDemo(out, j, operator), localFleet: f}
	return s.during(ctx, func(ctx context.Context) error { return s.tell(ctx, set.stay) })
}

// demoSelection selects the objects that the operator watches: a core kind and
// a custom one, in every cluster that the resolver lists.
func demoSelection() events.Selection {
	return events.Selection{
		Kinds: []client.Object{&corev1.ConfigMap{}, clustercache.Kind(widgetKind)}, Watch: true,
		Options: []client.ListOption{client.InNamespace(demoNamespace)},
	}
}

// tell runs the demonstration from the operator's start.
func (s *localStory) tell(ctx context.Context, stay bool) error {
	err := s.Tell(ctx,
		story.Chapter{Title: "The operator starts: what is there arrives", Tell: s.arrive},
		story.Chapter{Title: "An update and a delete", Tell: s.change},
		story.Chapter{Title: "East's API server is killed", Tell: s.kill},
		story.Chapter{Title: "West's connection is cut, and restored", Tell: s.cut},
		story.Chapter{Title: "East comes back", Tell: s.restart},
		story.Chapter{Title: "An informer without a user", Tell: s.tearDown},
		story.Chapter{Title: "Summary", Tell: s.summary},
	)
	if err != nil || !stay {
		return err
	}
	return s.stayLocal(ctx)
}

// informer returns the state and counters of the operator's informer of a kind.
// One more watch of an object set that is watched already costs no request; it
// is released at once.
func (s *localStory) informer(ctx context.Context, r *remote, kind client.Object) (informerpool.Status, error) {
	w, err := s.clusters().Cluster(r.key).Watch(ctx, kind, client.InNamespace(demoNamespace))
	if err != nil {
		return informerpool.Status{}, err
	}
	defer w.Release()
	return w.Status().Informer, nil
}

// informers is informer for both kinds.
func (s *localStory) informers(ctx context.Context, r *remote) (configMaps, widgets informerpool.Status, err error) {
	if configMaps, err = s.informer(ctx, r, &corev1.ConfigMap{}); err == nil {
		widgets, err = s.informer(ctx, r, clustercache.Kind(widgetKind))
	}
	return configMaps, widgets, err
}

// arrived waits until the reconciler has seen an object.
func (s *localStory) arrived(ctx context.Context, r request) (time.Duration, error) {
	name := fmt.Sprintf("%s %s of %s reconciled", r.kind.Kind, r.object.Name, r.cluster.Name)
	return s.Await(ctx, story.Patience, name, func() error {
		if s.journal.look(r) == nil {
			return errors.New("the reconciler has not seen it")
		}
		return nil
	})
}

// summary prints the totals.
func (s *localStory) summary(context.Context) error {
	s.showClusters()
	reports, unchanged := s.journal.totals()
	s.Say("%d reconciliations of objects, %d of them of an object that had not changed", reports, unchanged)
	return nil
}
