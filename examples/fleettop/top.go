// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// top draws the fleet that a monitor watches.
type top struct {
	*monitor
	display

	mu   sync.Mutex // protects last
	last frame      // the last that was drawn
}

func newTop(
	clusters resolver.Resolver, kinds []schema.GroupVersionKind, show display, o clustercache.Options,
) (*top, error) {
	m, err := newMonitor(clusters, kinds, show.note, o)
	if err != nil {
		return nil, err
	}
	return &top{monitor: m, display: show}, nil
}

// during watches and draws while do runs, and returns when all have ended.
func (t *top) during(ctx context.Context, do func(context.Context) error) error {
	return story.During(ctx, t.run, func(ctx context.Context) error {
		drawing, stop := context.WithCancel(ctx)
		var drawer sync.WaitGroup
		drawer.Go(func() { t.drawFrames(drawing) })
		defer drawer.Wait() // before anything else is printed
		defer stop()
		return do(ctx)
	})
}

// drawFrames draws until ctx ends.
func (t *top) drawFrames(ctx context.Context) {
	tick := time.NewTicker(t.interval())
	defer tick.Stop()
	t.begin()
	defer t.end()
	for {
		if f := t.frame(); len(f.rows) > 0 { // some are known by now
			t.draw(f)
			t.mu.Lock()
			t.last = f
			t.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// drawn returns the last frame that was drawn.
func (t *top) drawn() frame {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// showExisting shows contexts of the user's kubeconfig file.
func (s *settings) showExisting(ctx context.Context, show display, log logr.Logger) error {
	if _, err := s.contexts.Load(); err != nil { // a wrong name is not one to wait for
		return err
	}
	clusters, err := resolver.Files(resolver.FileOptions{
		Own: true,
		ID: func(_, context string) (resolver.Cluster, bool) {
			return resolver.Cluster{Name: context}, slices.Contains(s.contexts.Names, context)
		},
		Logger: log,
	}, s.contexts.File)
	if err != nil {
		return err
	}
	kinds := s.kinds
	if len(kinds) == 0 {
		kinds = defaultKinds()
	}
	t, err := newTop(clusters, kinds, show, clustercache.Options{Logger: log})
	if err != nil {
		return err
	}
	return t.showFor(ctx, s.length)
}

// showFor draws until length is over, where zero means no end, or until ctx
// ends. Both are as intended.
func (t *top) showFor(ctx context.Context, length time.Duration) error {
	return t.during(ctx, func(ctx context.Context) error {
		var over <-chan time.Time
		if length > 0 {
			over = time.After(length)
		}
		select {
		case <-over:
			return nil
		case <-ctx.Done():
		}
		if cause := context.Cause(ctx); errors.Is(cause, story.ErrEnded) {
			return cause
		}
		return nil
	})
}
