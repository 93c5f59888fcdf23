// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// leaver ends the goroutine it is called on, as t.FailNow does, or panics, in
// one of the places where a pool calls its user.
type leaver struct {
	*pooltest.Server

	place string
	leave func() // ends the call: by ending its goroutine, or by a panic
	left  atomic.Int64
	stay  atomic.Bool
}

func (l *leaver) at(place string) {
	if place == l.place && !l.stay.Load() {
		l.left.Add(1)
		l.leave()
	}
}

func (l *leaver) Ready(ctx context.Context, c types.NamespacedName) (informerpool.Epoch, error) {
	l.at("Source.Ready")
	return l.Server.Ready(ctx, c)
}

func (l *leaver) KindOf(context.Context, informerpool.Request) (string, error) {
	l.at("Source.KindOf")
	return "Widget", nil
}

func (l *leaver) Discover(context.Context, informerpool.Request) (informerpool.Discovery, error) {
	l.at("Source.Discover")
	return informerpool.Discovery{Served: true}, nil
}

func (l *leaver) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.MetadataOnly {
		l.at("audit List")
	}
	l.at("Source.List")
	body, err := l.Server.List(ctx, r)
	return &leaverBody{body, l, r.MetadataOnly}, err
}

func (l *leaver) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	l.at("Source.Watch")
	body, err := l.Server.Watch(ctx, r)
	return &leaverBody{body, l, false}, err
}

type leaverBody struct {
	io.ReadCloser

	l     *leaver
	audit bool
}

func (b *leaverBody) Read(p []byte) (int, error) {
	b.l.at("Body.Read")
	if b.audit {
		b.l.at("audit Read")
	}
	return b.ReadCloser.Read(p)
}

func (b *leaverBody) Close() error {
	_ = b.ReadCloser.Close()
	b.l.at("Body.Close")
	return nil
}

// Handle implements informerpool.Handler.
func (l *leaver) Handle(e informerpool.Event) {
	if e.Object().GetName() != "quiet" {
		l.at("Handler")
	}
}

// Replayed implements informerpool.ReplayHandler.
func (l *leaver) Replayed(informerpool.Key) { l.at("Replayed") }

// options make a pool call the leaver wherever possible.
func (l *leaver) options() informerpool.Options {
	return informerpool.Options{
		Source:        l,
		AuditInterval: 10 * time.Minute,
		OnListed:      func(informerpool.Key, time.Duration) { l.at("OnListed") },
		OnRollback:    func(informerpool.Key) { l.at("OnRollback") },
		OnFailed:      func(informerpool.Key, error) { l.at("OnFailed") },
		OnPanic:       func(string) { l.at("OnPanic") },
		PagedLists:    strings.Contains(l.place, "List") || strings.Contains(l.place, "audit"),
		Transforms: map[schema.GroupResource]informerpool.TransformFunc{
			pooltest.Widgets.GroupResource(): func(*unstructured.Unstructured) error {
				l.at("Transforms")
				return nil
			},
		},
	}
}

// everythingGoesWrong makes the pool call each callback, including those that
// report failures.
func (l *leaver) everythingGoesWrong() {
	s := l.Server
	before := pooltest.Copy(s)
	for i := range 3 {
		s.Put("ns", fmt.Sprint("more", i), i)
	}
	pooltest.After(time.Minute)
	s.Cut(io.ErrUnexpectedEOF)
	pooltest.After(time.Minute)
	s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
	s.Cut(io.ErrUnexpectedEOF)
	pooltest.After(5 * time.Minute)
	s.Heal()
	s.Restore(before, 0)
	pooltest.After(30 * time.Minute)
}

// places are all the places where a pool calls its user.
var places = []string{
	"Source.Ready", "Source.KindOf", "Source.Discover", "Source.List", "Source.Watch", "Body.Read", "Body.Close",
	"audit List", "audit Read", "Handler", "Replayed", "After", "Transforms", "Index", "AddIndex",
	"OnListed", "OnRollback", "OnFailed", "OnPanic",
}

// TestHazardCallbackEndsItsGoroutine: runtime.Goexit, and therefore t.FailNow
// in a test's callback, ended the process or stopped an informer, a
// subscription or Close for ever.
func TestHazardCallbackEndsItsGoroutine(t *testing.T) {
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCallbackThatLeaves(t, place, runtime.Goexit) })
		})
	}
}

// TestHazardPanicOfEachCallback: each callback panics for a while, alone.
func TestHazardPanicOfEachCallback(t *testing.T) {
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testCallbackThatLeaves(t, place, func() { panic("no " + place) })
			})
		})
	}
}

func testCallbackThatLeaves(t *testing.T, place string, leave func()) {
	t.Helper()
	l := &leaver{Server: pooltest.NewServer(), place: place, leave: leave}
	l.Put("ns", "a", 1)
	var mu sync.Mutex
	panics := map[string]int{}
	options := l.options()
	onPanic := options.OnPanic
	options.OnPanic = func(name string) {
		mu.Lock()
		panics[name]++
		mu.Unlock()
		onPanic(name)
	}
	p, err := informerpool.New(options)
	require.NoError(t, err)
	defer func() {
		began := time.Now()
		require.NoError(t, p.Close(context.Background()))
		require.LessOrEqual(t, time.Since(began), time.Second)
	}()
	k := pooltest.Everything
	k.Kind = "" // the source is queried
	lease := pooltest.Acquire(t, p, k)
	r := pooltest.NewRecorder()
	r.Epochs = true
	pooltest.Subscribe(t, p, lease, r)
	sub := pooltest.Subscribe(t, p, lease, l)
	marks := l.mark(t, sub, lease)
	l.everythingGoesWrong()
	sub.After(lease, func() { l.at("After") })
	sub.After(lease, func() { marks.Add(1) })
	pooltest.After(time.Minute)
	require.Positive(t, l.left.Load(), "it was called")
	if place != "OnPanic" {
		mu.Lock()
		require.NotEmpty(t, panics, "it is said")
		mu.Unlock()
	}
	l.stay.Store(true)
	pooltest.After(10 * time.Minute)
	require.NoError(t, lease.WaitForSync(t.Context()))
	require.NoError(t, sub.WaitForSync(t.Context(), lease))
	l.Put("ns", "quiet", 1)
	l.Put("ns", "last", 1)
	sub.After(lease, func() { marks.Add(1) })
	pooltest.After(time.Minute)
	if place != "Transforms" {
		require.Equal(t, l.State(nil), pooltest.Contents(t, lease))
		require.Equal(t, l.State(nil), r.State())
		r.RequireSound(t)
	}
	require.EqualValues(t, 2, marks.Load())
	require.Zero(t, sub.Pending())
	require.NoError(t, sub.Close(t.Context()))
}

// mark adds indexes, and panics once where only OnPanic matters. It returns a
// counter of marks.
func (l *leaver) mark(t *testing.T, sub *informerpool.Subscription, lease *informerpool.Lease) *atomic.Int64 {
	t.Helper()
	synctest.Wait()
	if l.place == "OnPanic" {
		sub.After(lease, func() { panic(errors.New("for OnPanic")) })
	}
	added := make(chan error, 1)
	go func() { // an index function may end the goroutine that adds it, and no other
		defer close(added)
		added <- lease.AddIndex("first", func(*informerpool.Object) []string {
			l.at("AddIndex")
			return []string{"x"}
		})
	}()
	synctest.Wait()
	require.NoError(t, <-added)
	require.NoError(t, lease.AddIndex("second", func(o *informerpool.Object) []string {
		if o.GetName() != "a" {
			l.at("Index")
		}
		return []string{"x"}
	}))
	return &atomic.Int64{}
}

// TestHazardPanicOfAnIndexIsNotSaid: queries failed, and nothing reported why.
func TestHazardPanicOfAnIndexIsNotSaid(t *testing.T) {
	var said []string
	var log lines
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.OnPanic = func(name string) { said = append(said, name) }
		o.Logger = funcr.New(log.add, funcr.Options{})
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.NoError(t, l.AddIndex("broken",
			func(o *informerpool.Object) []string { panic("secret of " + o.GetName()) }))
		require.Equal(t, []string{"Index", "Index"}, said)
		s.Put("ns", "c", 1)
		synctest.Wait()
		require.Equal(t, []string{"Index", "Index", "Index"}, said)
		_, _, err := l.List(informerpool.Query{Index: "broken", Value: "x"})
		require.ErrorIs(t, err, informerpool.ErrIndexPanicked)
		require.Len(t, log.of("broken"), 2, "one line for each look, however many objects there are")
		require.Empty(t, log.of("secret"))
	})
}

// lines are the lines of a log.
type lines struct {
	mu  sync.Mutex // protects all
	all []string
}

func (l *lines) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, prefix+args)
}

// of returns the lines that contain a text.
func (l *lines) of(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// TestHazardStopWaitsForEachCallback: each callback in turn never returns.
// Close of the pool waits until its own deadline, and no longer.
func TestHazardStopWaitsForEachCallback(t *testing.T) {
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStopWaitsFor(t, place) })
		})
	}
}

func testStopWaitsFor(t *testing.T, place string) {
	t.Helper()
	release := make(chan struct{})
	l := &leaver{Server: pooltest.NewServer(), place: place, leave: func() { <-release }}
	l.Put("ns", "a", 1)
	p, err := informerpool.New(l.options())
	require.NoError(t, err)
	k := pooltest.Everything
	k.Kind = "" // the source is queried
	lease := pooltest.Acquire(t, p, k)
	sub := pooltest.Subscribe(t, p, lease, l)
	pooltest.After(time.Minute)
	used := make(chan struct{})
	go func() { // an index function holds up the goroutine that adds it
		defer close(used)
		_ = lease.AddIndex("x", func(o *informerpool.Object) []string {
			if l.at("AddIndex"); o.GetName() != "a" {
				l.at("Index")
			}
			return nil
		})
		if place == "OnPanic" {
			sub.After(lease, func() { panic("for OnPanic") })
		}
		sub.After(lease, func() { l.at("After") })
	}()
	l.everythingGoesWrong()
	require.Positive(t, l.left.Load(), "it was called")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	_ = p.Close(ctx)
	require.LessOrEqual(t, time.Since(began), time.Second)
	l.stay.Store(true)
	close(release)
	<-used
	require.NoError(t, p.Close(context.Background()))
}
