// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

const (
	// connectPatience is how long the clusters have to answer for the first
	// time. Credential plugins may take a while.
	connectPatience = 10 * time.Second
	// failedPatience is how long a cluster may keep failing after its first
	// failure.
	failedPatience = 3 * time.Second
)

// existingStory is the demonstration on the user's own clusters, in which it
// changes nothing.
type existingStory struct {
	demo
	watches []*clustercache.Watch
}

// tellExisting runs the operator on contexts of a kubeconfig file.
func tellExisting(ctx context.Context, set settings, out *story.Printer, log logr.Logger) error {
	out.Chapter("Your clusters: read, and not changed")
	configs, err := set.contexts.Load()
	if err != nil {
		return err
	}
	access, err := resolver.Static(configs)
	if err != nil {
		return err
	}
	j := newJournal(out, false) // do not print the content of the user's objects
	// Without kinds, the selection has everything that is watched.
	operator, err := newOperator(configs[set.contexts.First()], access, events.Selection{}, j.report, log)
	if err != nil {
		return err
	}
	s := &existingStory{demo: newDemo(out, j, operator)}
	return s.during(ctx, func(ctx context.Context) error { return s.tell(ctx, set) })
}

func (s *existingStory) tell(ctx context.Context, set settings) error {
	connected, err := s.connect(ctx, set.contexts.Names)
	if err != nil {
		return err
	}
	kinds := append([]schema.GroupVersionKind{configMapKind}, s.customKind(ctx, connected)...)
	s.Chapter("What is there arrives")
	if err := s.watch(ctx, connected, kinds); err != nil {
		return err
	}
	s.showClusters()
	s.Chapter("Reads that cannot be answered say why")
	if err := s.refusals(ctx, set.contexts.Names, connected); err != nil {
		return err
	}
	if set.stay {
		s.Chapter("What happens from now on: Ctrl-C ends it")
		s.stay(ctx)
		return nil
	}
	s.Chapter("Informers without a user")
	if err := s.tearDown(ctx); err != nil {
		return err
	}
	s.Chapter("Summary")
	s.showClusters()
	s.Say("%d expectations, all met", s.Met)
	return nil
}

// connect waits for the clusters, and returns those that can be reached.
func (s *existingStory) connect(ctx context.Context, contexts []string) ([]client.ObjectKey, error) {
	var connected []client.ObjectKey
	deadline := time.Now().Add(connectPatience) // for all of them together: they connect at the same time
	for _, name := range contexts {
		key := client.ObjectKey{Name: name}
		var reported status.Cluster
		_, err := s.Await(ctx, time.Until(deadline), name+" to answer", func() (err error) {
			reported, err = s.clusters().Cluster(key).Status()
			failing := reported.Phase == status.PhaseDisconnected && time.Since(reported.Since) > failedPatience
			if err == nil && !failing && reported.Phase != status.PhaseReady {
				err = fmt.Errorf("phase %s", reported.Phase)
			}
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil, err
		case reported.Phase == status.PhaseReady:
			s.OK("%s is Ready", name)
			connected = append(connected, key)
		default:
			s.Say("%s cannot be reached, phase %s: %v", name, reported.Phase, reported.LastError)
		}
	}
	if len(connected) == 0 {
		return nil, &story.UnmetError{Expected: "a cluster that can be reached", Got: "none"}
	}
	return connected, nil
}

// customKind returns a kind that is defined by a CustomResourceDefinition in
// the first of the clusters, if the definitions can be read and there is one.
func (s *existingStory) customKind(ctx context.Context, clusters []client.ObjectKey) []schema.GroupVersionKind {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   "apiextensions.k8s.io",
		Version: "v1",
		Kind:    "CustomResourceDefinitionList",
	})
	// Definitions are not watched, so this read goes to the API server.
	if err := s.clusters().Cluster(clusters[0]).Reader().List(ctx, list, client.Limit(1)); err != nil {
		s.Say("definitions of custom kinds cannot be read, so ConfigMaps have to do: %v", err)
		return nil
	}
	for _, definition := range list.Items {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			if version["served"] == true && name != "" {
				return []schema.GroupVersionKind{{Group: group, Version: name, Kind: kind}}
			}
		}
	}
	s.Say("%s defines no custom kind, so ConfigMaps have to do", clusters[0].Name)
	return nil
}

// watch watches each kind in each cluster, and waits for the watches that can
// sync.
func (s *existingStory) watch(ctx context.Context, clusters []client.ObjectKey, kinds []schema.GroupVersionKind) error {
	for _, cluster := range clusters {
		for _, kind := range kinds {
			w, err := s.clusters().Cluster(cluster).Watch(ctx, clustercache.Kind(kind))
			if err != nil {
				return err
			}
			s.watches = append(s.watches, w)
		}
	}
	for _, w := range s.watches {
		bounded, cancel := context.WithTimeout(ctx, story.Patience)
		err := w.WaitForSync(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			s.Say("%v", err) // it may be forbidden, or not defined there: print that, too
		}
	}
	for _, cluster := range clusters {
		if err := s.reconciled(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// reconciled waits until the reconciler has seen all cached objects of a
// cluster.
func (s *existingStory) reconciled(ctx context.Context, cluster client.ObjectKey) error {
	var objects int
	_, err := s.Await(ctx, story.Patience, "what is cached of "+cluster.Name+" reconciled", func() error {
		status, err := s.clusters().Cluster(cluster).Status()
		objects, _, _ = s.journal.counts(cluster)
		if err == nil && status.Objects != objects {
			err = fmt.Errorf("%d of %d objects", objects, status.Objects)
		}
		return err
	})
	if err == nil {
		s.OK("the %d objects of %s are reconciled", objects, cluster.Name)
	}
	return err
}

// refusals shows the typed errors.
func (s *existingStory) refusals(ctx context.Context, contexts []string, connected []client.ObjectKey) error {
	read := func(cluster client.ObjectKey, list client.ObjectList, want error, options ...client.ListOption) error {
		err := s.clusters().Cluster(cluster).Reader().List(ctx, list, options...)
		return s.Expect(errors.Is(err, want), fmt.Sprintf("errors.Is %q", want), fmt.Sprint(err))
	}
	for _, name := range contexts {
		key := client.ObjectKey{Name: name}
		if slices.Contains(connected, key) {
			continue
		}
		if err := read(key, &corev1.ConfigMapList{}, clustercache.ErrNotConnected); err != nil {
			return err
		}
	}
	if err := read(client.ObjectKey{Name: "no-such-context"}, &corev1.ConfigMapList{},
		clustercache.ErrUnknownCluster); err != nil {
		return err
	}
	return read(connected[0], &corev1.PodList{}, clustercache.ErrNotWatched, clustercache.CacheOnly)
}

// tearDown releases the informers, and waits until they have ended.
func (s *existingStory) tearDown(ctx context.Context) error {
	for _, w := range s.watches {
		w.Release()
	}
	s.Say("released; they stay for %s, so that coming back soon costs nothing", linger)
	took, err := s.Await(ctx, linger+story.Patience, "no informer", func() error {
		for _, status := range s.clusters().Statuses() {
			if status.Informers > 0 {
				return fmt.Errorf("%s has %d", status.Cluster.Name, status.Informers)
			}
		}
		return nil
	})
	if err == nil {
		s.OK("all are gone, %s after the last user", story.Brief(took))
	}
	return err
}
