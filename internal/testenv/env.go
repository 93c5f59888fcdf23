// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// Env is a set of clusters that are started and stopped together.
type Env struct {
	// Clusters are the clusters, in order. The slice must not be modified.
	Clusters []*Cluster

	dir      string
	watchdog *watchdog
	detach   func() bool // from the context of Run
	stop     func() error
}

// Run starts n clusters in parallel and returns when all are ready. The caller
// must call Stop; the end of ctx has the same effect. If the control plane
// binaries have to be built first, Run blocks for minutes.
//
// However this process ends, its clusters end with it.
func Run(ctx context.Context, n int, opts ...Option) (*Env, error) {
	o := newOptions(opts)
	binaries, err := o.find(ctx)
	if err != nil {
		return nil, err
	}
	e, err := newEnv(n, o, binaries)
	if err != nil {
		return nil, fmt.Errorf("prepare clusters: %w", err)
	}
	e.detach = context.AfterFunc(ctx, func() { _ = e.stop() })
	if err := e.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start clusters: %w", err), e.Stop())
	}
	return e, nil
}

// Start starts n clusters in parallel for a test and returns when all are
// ready. They end with the test. If they cannot be started, the test fails; it
// is never skipped.
//
// A test binary that is interrupted by SIGINT or SIGTERM ends its clusters
// before it dies.
func Start(t testing.TB, n int, opts ...Option) []*Cluster {
	t.Helper()
	ctx, cancel := beforeDeadline(t)
	defer cancel()
	o := newOptions(opts)
	binaries, err := o.find(ctx)
	if err != nil {
		t.Fatalf("no clusters: %v", err)
	}
	e, err := newEnv(n, o, binaries)
	if err != nil {
		t.Fatalf("prepare clusters: %v", err)
	}
	uninterrupt := stopOnInterrupt(e)
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stop clusters: %v", err)
		}
		uninterrupt()
	})
	if err := e.start(ctx, o); err != nil {
		t.Fatalf("start clusters: %v", err)
	}

	return e.Clusters
}

// beforeDeadline returns a context that ends shortly before the test's
// deadline, so that the test can report what took so long.
func beforeDeadline(t testing.TB) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	with, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return context.WithCancel(ctx)
	}
	deadline, ok := with.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	reserve := min(deadlineReserve, time.Until(deadline)/4)

	return context.WithDeadlineCause(ctx, deadline.Add(-reserve), errors.New("the test's time is up"))
}

// newEnv prepares clusters without starting them, and starts a watchdog for
// them.
func newEnv(n int, o options, binaries assets.Binaries) (_ *Env, err error) {
	e := &Env{detach: func() bool { return true }}
	e.stop = sync.OnceValue(e.close)
	if e.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return nil, err
	}
	if e.dir, err = filepath.Abs(e.dir); err != nil { // the watchdog may have another working directory
		return nil, err
	}
	if e.watchdog, err = startWatchdog(e.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(e.dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	var shared *pki
	for i := range n {
		p := shared
		if p == nil {
			p = newPKI()
		}
		if o.sharedPKI {
			shared = p
		}
		c, err := newCluster(e.dir, o.name(i), o, binaries, p)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", o.name(i), err)
		}
		e.Clusters = append(e.Clusters, c)
	}

	return e, nil
}

// start starts the clusters, at most as many at a time as the machine can
// handle: each keeps a core busy for seconds, and envtest gives up on clusters
// that get too little CPU time.
func (e *Env) start(ctx context.Context, o options) error {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))
	errs := make([]error, len(e.Clusters))
	var wg sync.WaitGroup
	for i, c := range e.Clusters {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if errs[i] = c.start(ctx); errs[i] != nil {
				cancel(errors.New("another cluster did not start"))
			}
		})
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	o.log(fmt.Sprintf("%d clusters started in %s", len(e.Clusters), time.Since(begin).Round(100*time.Millisecond)))

	return nil
}

// Stop ends all clusters at once and returns when all their processes and files
// are gone. Further calls wait for the first and return its result.
func (e *Env) Stop() error {
	e.detach()
	return e.stop()
}

func (e *Env) close() error {
	errs := make([]error, len(e.Clusters)+1)
	var wg sync.WaitGroup
	for i, c := range e.Clusters {
		wg.Go(func() { errs[i] = c.Stop() })
	}
	wg.Wait()
	errs[len(e.Clusters)] = e.watchdog.stop()

	return errors.Join(errs...)
}
