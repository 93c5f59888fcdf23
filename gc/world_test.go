// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

// grace is the default value, which most tests use.
const grace = 30 * time.Second

// world is the environment of a collector in these tests: owners and resources
// are strings. It checks by itself that Acquire and Release of one resource
// alternate and never overlap.
type world struct {
	*gc.Collector[string, string]
	t *testing.T

	// acquire, release and inUse replace callbacks that do nothing and answer
	// "yes". They are set before use.
	acquire func(ctx context.Context, resource string) error
	release func(resource string)
	inUse   func(ctx context.Context, owner string) (bool, error)

	// mu protects the fields below.
	mu    sync.Mutex
	phase map[string]string
	log   []string
	looks []look
	lines []string
}

type look struct {
	owner string
	at    time.Time
}

// newWorld returns a world and its collector. The functions in change may
// modify the options.
func newWorld(t *testing.T, change ...func(*gc.Options[string, string])) *world {
	t.Helper()
	w := &world{t: t, phase: map[string]string{}}
	options := gc.Options[string, string]{Acquire: w.onAcquire, Release: w.onRelease, InUse: w.onInUse}
	options.Logger = funcr.New(w.onLog, funcr.Options{Verbosity: 1})
	for _, f := range change {
		f(&options)
	}
	c, err := gc.New(options)
	require.NoError(t, err)
	w.Collector = c
	return w
}

func noGrace(o *gc.Options[string, string])    { o.Grace = -1 }
func noLiveness(o *gc.Options[string, string]) { o.InUse = nil }

func (w *world) step(resource, from, during string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.phase[resource]; got != from {
		w.t.Errorf("%s %s while it is %q, want %q", during, resource, got, from)
	}
	w.phase[resource] = during
}

func (w *world) stepped(resource, to, entry string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase[resource] = to
	if entry != "" {
		w.log = append(w.log, entry+" "+resource)
	}
}

func (w *world) onAcquire(ctx context.Context, resource string) (err error) {
	w.step(resource, "", "acquiring")
	to, entry := "", ""
	defer func() { w.stepped(resource, to, entry) }()
	if w.acquire != nil {
		if err := w.acquire(ctx, resource); err != nil {
			return err
		}
	}
	to, entry = "live", "acquired"
	return nil
}

func (w *world) onRelease(resource string) {
	w.step(resource, "live", "releasing")
	defer w.stepped(resource, "", "released")
	if w.release != nil {
		w.release(resource)
	}
}

func (w *world) onInUse(ctx context.Context, owner string) (bool, error) {
	w.mu.Lock()
	w.looks = append(w.looks, look{owner: owner, at: time.Now()})
	w.mu.Unlock()
	if w.inUse == nil {
		return true, nil
	}
	return w.inUse(ctx, owner)
}

func (w *world) onLog(_, args string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, args)
}

// logged returns the log as one string, a line for each entry.
func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// took returns the acquisitions and releases since the last call.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

// looked returns the times at which InUse was called since the last call, as
// durations since the given time.
func (w *world) looked(since time.Time) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ret []time.Duration
	for _, l := range w.looks {
		ret = append(ret, l.at.Sub(since))
	}
	w.looks = nil
	return ret
}

func (w *world) live() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ret []string
	for r, phase := range w.phase {
		if phase == "live" {
			ret = append(ret, r)
		}
	}
	slices.Sort(ret)
	return ret
}

func (w *world) declare(owner string, uses ...string) gc.Change[string] {
	w.t.Helper()
	change, err := w.Declare(w.t.Context(), owner, uses...)
	require.NoError(w.t, err)
	slices.Sort(change.Removed)
	return change
}

func (w *world) sweep() gc.Swept[string, string] {
	w.t.Helper()
	swept, err := w.Sweep(w.t.Context())
	require.NoError(w.t, err)
	slices.Sort(swept.Released)
	return swept
}

// run starts Run. stop stops it and returns how long that took.
func (w *world) run() (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	return func() time.Duration {
		w.t.Helper()
		start := time.Now()
		cancel()
		require.NoError(w.t, <-done)
		return time.Since(start)
	}
}

// async runs f in a goroutine; result waits for its result.
func async[T any](f func() (T, error)) (result func() (T, error)) {
	var v T
	err := fmt.Errorf("ended by Goexit")
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = f()
	}()
	return func() (T, error) {
		<-done
		return v, err
	}
}

// running reports whether the result is still outstanding once everything that
// can happen now has happened.
func running[T any](result func() (T, error)) bool {
	done := make(chan struct{})
	go func() {
		_, _ = result()
		close(done)
	}()
	synctest.Wait()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// gate makes callbacks wait until it is opened.
type gate struct {
	entered chan string
	open    chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan string, 100), open: make(chan struct{})} }

// pass waits for the gate to open, or for ctx.
func (g *gate) pass(ctx context.Context, who string) error {
	g.entered <- who
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
