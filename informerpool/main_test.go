// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// bubble runs a test in virtual time with a pool on a model server, and closes
// the pool.
func bubble(t *testing.T, change func(*informerpool.Options), test func(t *testing.T, s *modelServer, p *informerpool.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newModelServer()
		o := informerpool.Options{Source: s}
		if change != nil {
			change(&o)
		}
		p, err := informerpool.New(o)
		require.NoError(t, err)
		defer func() { // also when the test has failed: a bubble must be left empty
			began := time.Now()
			require.NoError(t, p.Close(context.Background()))
			require.LessOrEqual(t, time.Since(began), time.Second, "stop must be prompt")
		}()
		test(t, s, p)
	})
}

var everything = informerpool.Key{Cluster: types.NamespacedName{Namespace: "fleet", Name: "one"}, Resource: widgets, Kind: "Widget"}

func in(namespace string) informerpool.Key {
	k := everything
	k.Namespace = namespace
	return k
}

func acquire(t *testing.T, p *informerpool.Pool, k informerpool.Key) *informerpool.Lease {
	t.Helper()
	l, err := p.Acquire(context.Background(), k)
	require.NoError(t, err)
	return l
}

func acquireSynced(t *testing.T, p *informerpool.Pool, k informerpool.Key) *informerpool.Lease {
	t.Helper()
	l := acquire(t, p, k)
	require.NoError(t, l.WaitForSync(context.Background()))
	return l
}

// contents returns the objects that a lease lists, in the form of
// modelServer.state.
func contents(t *testing.T, l *informerpool.Lease) map[string]string {
	t.Helper()
	objects, _, err := l.List(informerpool.Query{})
	require.NoError(t, err)
	out := map[string]string{}
	for _, o := range objects {
		out[o.GetNamespace()+"/"+o.GetName()] = fmt.Sprintf("%s@%s", o.GetUID(), o.GetResourceVersion())
	}
	return out
}

// recorder is a handler that records its events and checks each object's
// history.
type recorder struct {
	mu     sync.Mutex // protects the fields below
	events []string
	state  map[string]*informerpool.Object
	wrong  []string
	before func(informerpool.Event)
	epochs bool // versions may go back, as in a new epoch
}

func newRecorder() *recorder { return &recorder{state: map[string]*informerpool.Object{}} }

// Handle implements informerpool.Handler.
func (r *recorder) Handle(e informerpool.Event) {
	if r.before != nil {
		r.before(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := e.Object()
	name := o.GetNamespace() + "/" + o.GetName()
	text := fmt.Sprintf("%s %s@%s", e.Type, name, o.GetResourceVersion())
	r.events = append(r.events, text)
	known := r.state[name]
	switch e.Type {
	case informerpool.Added:
		if known != nil {
			r.wrong = append(r.wrong, text+": known already")
		}
		r.state[name] = e.New
	case informerpool.Updated:
		switch {
		case known == nil:
			r.wrong = append(r.wrong, text+": not known")
		case known != e.Old:
			r.wrong = append(r.wrong, text+": old is not what was told last: "+e.Old.GetResourceVersion()+" told "+known.GetResourceVersion())
		case !e.Resync && !r.epochs && !later(e.New, known):
			r.wrong = append(r.wrong, text+": not later than "+known.GetResourceVersion())
		}
		r.state[name] = e.New
	case informerpool.Deleted:
		told := e.Told
		if told == nil {
			told = e.Old
		}
		switch {
		case known == nil:
			r.wrong = append(r.wrong, text+": not known")
		case known.GetUID() != o.GetUID():
			r.wrong = append(r.wrong, text+": deletes another object")
		case known != told:
			r.wrong = append(r.wrong, text+": does not say what was told last")
		}
		delete(r.state, name)
	}
}

func later(a, b *informerpool.Object) bool {
	va, _ := a.Version()
	vb, _ := b.Version()
	return va > vb
}

// take returns the events since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// told is the state that the events add up to.
func (r *recorder) told() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for name, o := range r.state {
		out[name] = fmt.Sprintf("%s@%s", o.GetUID(), o.GetResourceVersion())
	}
	return out
}

func (r *recorder) requireSound(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.wrong)
}

func subscribe(t *testing.T, p *informerpool.Pool, l *informerpool.Lease, h informerpool.Handler) *informerpool.Subscription {
	t.Helper()
	s := p.Subscribe(h)
	require.NoError(t, s.Add(l))
	return s
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// after waits for d and then until the bubble is quiet, which orders the work
// of its goroutines before the code that follows.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// count is the number of events since the last take.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}
