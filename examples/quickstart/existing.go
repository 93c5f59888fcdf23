// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
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
	story
	watches []*clustercache.Watch
}

// tellExisting runs the operator on contexts of a kubeconfig file.
func tellExisting(ctx context.Context, set settings, out *printer, log logr.Logger) error {
	out.chapter("Your clusters: read, and not changed")
	configs, err := load(set.kubeconfig, set.contexts)
	if err != nil {
		return err
	}
	access, err := resolver.Static(configs)
	if err != nil {
		return err
	}
	j := newJournal(out, false) // do not print the content of the user's objects
	// Without kinds, the selection has everything that is watched.
	hub := configs[client.ObjectKey{Name: set.contexts[0]}]
	operator, err := newOperator(hub, access, clustercache.ObjectSelection{}, j.report, log)
	if err != nil {
		return err
	}
	s := &existingStory{story: story{out: out, journal: j, operator: operator}}
	return s.during(ctx, func(ctx context.Context) error { return s.tell(ctx, set) })
}

// load reads contexts of a kubeconfig file as kubectl does, without
// restrictions, since it is the user's own.
func load(path string, contexts []string) (map[client.ObjectKey]*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	configs := map[client.ObjectKey]*rest.Config{}
	for _, name := range contexts {
		if file.Contexts[name] == nil {
			return nil, fmt.Errorf("%s has no context %q; it has %s",
				path, name, strings.Join(slices.Sorted(maps.Keys(file.Contexts)), ", "))
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
			&clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("context %q: %w", name, err)
		}
		configs[client.ObjectKey{Name: name}] = config
	}
	return configs, nil
}

func (s *existingStory) tell(ctx context.Context, set settings) error {
	connected, err := s.connect(ctx, set.contexts)
	if err != nil {
		return err
	}
	kinds := append([]schema.GroupVersionKind{configMapKind}, s.customKind(ctx, connected)...)
	s.out.chapter("What is there arrives")
	if err := s.watch(ctx, connected, kinds); err != nil {
		return err
	}
	s.table()
	s.out.chapter("Reads that cannot be answered say why")
	if err := s.refusals(ctx, set.contexts, connected); err != nil {
		return err
	}
	if set.stay {
		s.out.chapter("What happens from now on: Ctrl-C ends it")
		s.stay(ctx)
		return nil
	}
	s.out.chapter("Informers that nobody uses any more")
	if err := s.tearDown(ctx); err != nil {
		return err
	}
	s.out.chapter("Summary")
	s.table()
	s.out.say("%d expectations, all met", s.met)
	return nil
}

// connect waits for the clusters, and returns those that can be reached.
func (s *existingStory) connect(ctx context.Context, contexts []string) ([]client.ObjectKey, error) {
	var connected []client.ObjectKey
	deadline := time.Now().Add(connectPatience) // for all of them together: they connect at the same time
	for _, name := range contexts {
		key := client.ObjectKey{Name: name}
		var status clustercache.Status
		_, err := s.await(ctx, time.Until(deadline), name+" to answer", func() (err error) {
			status, err = s.clusters().Status(key)
			failing := status.Phase == clustercache.PhaseDisconnected && time.Since(status.Since) > failedPatience
			if err == nil && !failing && status.Phase != clustercache.PhaseReady {
				err = fmt.Errorf("phase %s", status.Phase)
			}
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil, err
		case status.Phase == clustercache.PhaseReady:
			s.ok("%s is Ready", name)
			connected = append(connected, key)
		default:
			s.out.say("%s cannot be reached, phase %s: %v", name, status.Phase, status.LastError)
		}
	}
	if len(connected) == 0 {
		return nil, &unmetError{expected: "a cluster that can be reached", got: "none"}
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
	if err := s.clusters().Reader(clusters[0]).List(ctx, list, client.Limit(1)); err != nil {
		s.out.say("definitions of custom kinds cannot be read, so ConfigMaps have to do: %v", err)
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
	s.out.say("%s defines no custom kind, so ConfigMaps have to do", clusters[0].Name)
	return nil
}

// watch watches each kind in each cluster, and waits for the watches that can
// sync.
func (s *existingStory) watch(ctx context.Context, clusters []client.ObjectKey, kinds []schema.GroupVersionKind) error {
	for _, cluster := range clusters {
		for _, kind := range kinds {
			w, err := s.clusters().Watch(ctx, cluster, clustercache.Kind(kind))
			if err != nil {
				return err
			}
			s.watches = append(s.watches, w)
		}
	}
	for _, w := range s.watches {
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := w.WaitForSync(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			s.out.say("%v", err) // it may be forbidden, or not defined there: print that, too
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
	_, err := s.await(ctx, patience, "what is cached of "+cluster.Name+" reconciled", func() error {
		status, err := s.clusters().Status(cluster)
		objects, _, _ = s.journal.counts(cluster)
		if err == nil && status.Objects != objects {
			err = fmt.Errorf("%d of %d objects", objects, status.Objects)
		}
		return err
	})
	if err == nil {
		s.ok("the %d objects of %s are reconciled", objects, cluster.Name)
	}
	return err
}

// refusals shows the typed errors.
func (s *existingStory) refusals(ctx context.Context, contexts []string, connected []client.ObjectKey) error {
	read := func(cluster client.ObjectKey, list client.ObjectList, want error, options ...client.ListOption) error {
		err := s.clusters().Reader(cluster).List(ctx, list, options...)
		return s.expect(errors.Is(err, want), fmt.Sprintf("errors.Is %q", want), fmt.Sprint(err))
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
	s.out.say("released; they stay for %s, so that coming back soon costs nothing", linger)
	took, err := s.await(ctx, linger+patience, "no informer", func() error {
		for _, status := range s.clusters().Statuses() {
			if status.Informers > 0 {
				return fmt.Errorf("%s has %d", status.Cluster.Name, status.Informers)
			}
		}
		return nil
	})
	if err == nil {
		s.ok("all are gone, %s after the last user", brief(took))
	}
	return err
}
