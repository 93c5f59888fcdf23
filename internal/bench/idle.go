// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
)

// idle measures what an informer of an empty kind costs once it is synced, and what a handler adds. All informers share
// one connection, which exists, with one informer, before the first look: that and what is made once per process cancel out.
func idle(ctx context.Context, t task) (figures, error) {
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
	namespaces := make([]string, t.Count)
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("idle-%d", i)
	}
	none := settle()
	if err := t.profile("none"); err != nil {
		return nil, err
	}
	if err := w.watch(ctx, configMaps, namespaces...); err != nil {
		return nil, err
	}
	informers := settle()
	if err := t.profile("informers"); err != nil {
		return nil, err
	}
	if err := w.handle(ctx); err != nil {
		return nil, err
	}
	handlers := settle()
	if err := t.profile("handlers"); err != nil {
		return nil, err
	}
	f := informers.per(t.Count, none, "informer/")
	maps.Copy(f, handlers.per(t.Count, informers, "handler/"))
	n, err := w.count(ctx)
	if err == nil && n != 0 {
		err = fmt.Errorf("empty kind has %d objects", n)
	}
	return f, err
}

func (t task) open() (watcher, error) {
	s, err := subjectNamed(t.Subject)
	if err != nil {
		return nil, err
	}
	return s.open(t.Server.config())
}
