// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// bookmarked is how long an informer waits so that each watch gets a bookmark,
// which an API server sends once a minute.
const bookmarked = 75 * time.Second

// idle measures what an informer of an empty kind costs once it has synced,
// what a handler adds, and what remains after an object has been created and
// deleted. All connections exist, each with one informer, before the first
// measurement, so that their cost and the cost of data created once per process
// cancel out. There are several connections, because one carries at most a
// hundred informers, and stacks are counted in blocks of 32 KiB.
func idle(ctx context.Context, t task) (measure.Figures, error) {
	namespaces := idleNamespaces(subject{name: t.Subject}, t.Count)
	first := namespaces[t.Count]
	namespaces = namespaces[:t.Count]
	writer, err := kubernetes.NewForConfig(subjects.ConfigOf(t.Cluster))
	if err != nil {
		return nil, err
	}
	if err := churn(ctx, writer, []string{first}, func() error { return nil }); err != nil {
		return nil, err
	}
	watchers, err := t.openAll(ctx, first)
	if err != nil {
		return nil, err
	}
	var moments []measure.Footprint
	for _, m := range []struct {
		name  string
		bring func() error
	}{
		{"none", func() error { return nil }},
		{"informers", func() error {
			return each(watchers, func(w watcher) error { return w.watch(ctx, configMaps, namespaces...) })
		}},
		{"handlers", func() error { return each(watchers, func(w watcher) error { return w.handle(ctx) }) }},
		{"churned", func() error {
			return churn(ctx, writer, namespaces, func() error { return holding(ctx, watchers, t.Count) })
		}},
	} {
		if err := m.bring(); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		if m.name == "informers" && t.Wait {
			time.Sleep(bookmarked)
		}
		moments = append(moments, measure.Settle())
		if err := t.profile(m.name); err != nil {
			return nil, err
		}
	}

	n := t.Count * t.Connections
	f := per(n, moments[0], moments[1], "informer/")
	maps.Copy(f, per(n, moments[1], moments[2], "handler/"))
	maps.Copy(f, per(n, moments[0], moments[3], "churned/"))

	return f, holding(ctx, watchers, 0) // keeps them from being garbage until here
}

// idleNamespaces returns n+1 namespaces that only this subject uses: one for
// the first informer of each connection, and n for the others.
func idleNamespaces(s subject, n int) []string {
	all := make([]string, n+1)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", ".", "-").Replace(strings.ToLower(s.name)), i)
	}
	return all
}

// openAll opens the subject on each connection, with one informer that has a
// handler.
func (t task) openAll(ctx context.Context, namespace string) ([]watcher, error) {
	var watchers []watcher
	for range t.Connections {
		w, err := t.open()
		if err != nil {
			return nil, err
		}
		if err := w.watch(ctx, configMaps, namespace); err != nil {
			return nil, err
		}
		if err := w.handle(ctx); err != nil {
			return nil, err
		}
		watchers = append(watchers, w)
	}

	return watchers, nil
}

func each(watchers []watcher, do func(watcher) error) error {
	for _, w := range watchers {
		if err := do(w); err != nil {
			return err
		}
	}
	return nil
}

// churn creates an object of 8 KiB in each namespace, waits until there reports
// that all have arrived, and deletes them again. Garbage is collected all the
// time, as in a long-lived process: otherwise memory that each informer retains
// could look shared because many informers were served at the same moment.
func churn(ctx context.Context, writer kubernetes.Interface, namespaces []string, there func() error) error {
	const name = "churned"
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"data": strings.Repeat("0123456789abcdef", 512)},
	}
	for i, ns := range namespaces {
		if _, err := writer.CoreV1().ConfigMaps(ns).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		if i%8 == 0 {
			runtime.GC()
		}
	}

	if err := there(); err != nil {
		return err
	}

	for i, ns := range namespaces {
		if err := writer.CoreV1().ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if i%8 == 0 {
			runtime.GC()
		}
	}

	return nil
}

// holding waits until the informers of each connection hold n objects in total.
func holding(ctx context.Context, watchers []watcher, n int) error {
	return each(watchers, func(w watcher) error {
		for have := -1; have != n; {
			var err error
			if have, err = w.count(ctx); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%d objects instead of %d: %w", have, n, ctx.Err())
			case <-time.After(30 * time.Millisecond):
			}
		}

		return nil
	})
}

func (t task) open() (watcher, error) {
	s, err := subjectNamed(t.Subject)
	if err != nil {
		return nil, err
	}
	return s.open(subjects.ConfigOf(t.Cluster))
}
