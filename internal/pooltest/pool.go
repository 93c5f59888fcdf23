// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Bubble runs a test in virtual time with a pool on a model server, and closes
// the pool.
func Bubble(t *testing.T, change func(*informerpool.Options),
	test func(t *testing.T, s *Server, p *informerpool.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
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

// Everything is the key of all widgets of one cluster.
var Everything = informerpool.Key{Cluster: types.NamespacedName{Namespace: "fleet", Name: "one"}, Resource: Widgets,
	Kind: "Widget"}

// In narrows Everything to a namespace.
func In(namespace string) informerpool.Key {
	k := Everything
	k.Namespace = namespace
	return k
}

// Acquire acquires a lease.
func Acquire(t *testing.T, p *informerpool.Pool, k informerpool.Key) *informerpool.Lease {
	t.Helper()
	l, err := p.Acquire(context.Background(), k)
	require.NoError(t, err)
	return l
}

// AcquireSynced acquires a lease and waits for its informer to sync.
func AcquireSynced(t *testing.T, p *informerpool.Pool, k informerpool.Key) *informerpool.Lease {
	t.Helper()
	l := Acquire(t, p, k)
	require.NoError(t, l.WaitForSync(context.Background()))
	return l
}

// Contents returns the objects that a lease lists, in the form of
// Server.State.
func Contents(t *testing.T, l *informerpool.Lease) map[string]string {
	t.Helper()
	objects, _, err := l.List(informerpool.Query{})
	require.NoError(t, err)
	out := map[string]string{}
	for _, o := range objects {
		out[o.GetNamespace()+"/"+o.GetName()] = fmt.Sprintf("%s@%s", o.GetUID(), o.GetResourceVersion())
	}
	return out
}

// Subscribe adds a lease to a new subscription.
func Subscribe(t *testing.T, p *informerpool.Pool, l *informerpool.Lease,
	h informerpool.Handler) *informerpool.Subscription {
	t.Helper()
	s := p.Subscribe(h)
	require.NoError(t, s.Add(l))
	return s
}

// Record adds a lease to a new subscription, and returns what records its
// events.
func Record(t *testing.T, p *informerpool.Pool, l *informerpool.Lease) *Recorder {
	t.Helper()
	r := NewRecorder()
	Subscribe(t, p, l, r)
	return r
}

// After waits for d and then until the bubble is quiet, which orders the work
// of its goroutines before the code that follows.
func After(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Stacks returns the stacks of all goroutines.
func Stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// Sorted returns the sorted keys of a map.
func Sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Without returns the events that do not contain a name.
func Without(events []string, name string) (out []string) {
	for _, e := range events {
		if !strings.Contains(e, name) {
			out = append(out, e)
		}
	}
	return out
}
