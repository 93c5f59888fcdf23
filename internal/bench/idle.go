// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
)

// idle measures what an informer of an empty kind costs once it is synced, and what a handler adds. Every connection
// exists, with one informer, before the first look: that, and what is made once per process, cancel out. There are
// several connections, because one takes no more than a hundred informers, and stacks are counted in blocks of 32 KiB.
func idle(ctx context.Context, t task) (figures, error) {
	var watchers []watcher
	for range t.Connections {
		w, err := t.open()
		if err != nil {
			return nil, err
		}
		if err := w.watch(ctx, configMaps, "idle-first"); err != nil {
			return nil, err
		}
		if err := w.handle(ctx); err != nil {
			return nil, err
		}
		watchers = append(watchers, w)
	}
	namespaces := make([]string, t.Count)
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("idle-%d", i)
	}
	none := settle()
	if err := t.profile("none"); err != nil {
		return nil, err
	}
	for _, w := range watchers {
		if err := w.watch(ctx, configMaps, namespaces...); err != nil {
			return nil, err
		}
	}
	informers := settle()
	if err := t.profile("informers"); err != nil {
		return nil, err
	}
	for _, w := range watchers {
		if err := w.handle(ctx); err != nil {
			return nil, err
		}
	}
	handlers := settle()
	if err := t.profile("handlers"); err != nil {
		return nil, err
	}
	n := t.Count * t.Connections
	f := informers.per(n, none, "informer/")
	maps.Copy(f, handlers.per(n, informers, "handler/"))
	return f, empty(ctx, watchers)
}

// empty checks that the informers hold nothing; until then they are not garbage.
func empty(ctx context.Context, watchers []watcher) error {
	for _, w := range watchers {
		if n, err := w.count(ctx); err != nil || n != 0 {
			return fmt.Errorf("empty kind has %d objects: %w", n, err)
		}
	}
	return nil
}

func (t task) open() (watcher, error) {
	s, err := subjectNamed(t.Subject)
	if err != nil {
		return nil, err
	}
	return s.open(t.Server.config())
}
