// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// gate lets reconciles begin until it is closed. controller-runtime cancels the
// contexts of all reconciles as soon as the manager stops; a program that
// closes its gate first lets those that are under way finish.
type gate struct {
	mu struct {
		sync.Mutex

		running int
		closed  bool
		idle    chan struct{} // made by close; closed once nothing is running
	}
}

// guard returns a reconciler that drops requests once the gate is closed. The
// next start of the program reconciles every object anyway.
func (g *gate) guard(r reconcile.TypedReconciler[controller.Request]) reconcile.TypedReconciler[controller.Request] {
	return reconcile.TypedFunc[controller.Request](
		func(ctx context.Context, request controller.Request) (reconcile.Result, error) {
			if !g.enter() {
				return reconcile.Result{}, nil
			}
			defer g.leave()
			return r.Reconcile(ctx, request)
		})
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return false
	}
	g.mu.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.running--; g.mu.running == 0 && g.mu.closed {
		close(g.mu.idle)
	}
}

// close closes the gate, and waits until no reconcile is under way, or until
// ctx ends. It returns how many are left. It can be called once.
func (g *gate) close(ctx context.Context) (left int) {
	g.mu.Lock()
	g.mu.closed = true
	g.mu.idle = make(chan struct{})
	idle := g.mu.idle
	if g.mu.running == 0 {
		close(idle)
	}
	g.mu.Unlock()

	select {
	case <-idle:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.running
}
