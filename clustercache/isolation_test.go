// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/stillapi"
)

// condition is how a member of a crowded fleet answers.
type condition int

const (
	answering condition = iota
	hanging             // accepts requests and never answers
	refusing            // accepts no connections
)

// member is one cluster of a crowded fleet. It is a round tripper.
type member struct {
	stillapi.Server

	mu    sync.Mutex
	now   condition
	turn  context.Context // ends when the condition changes
	close context.CancelFunc
}

func newMember(name string) *member {
	m := &member{Server: stillapi.Server{Name: name, Objects: 1}}
	m.turn, m.close = context.WithCancel(context.Background())
	return m
}

// become changes the condition. Requests under way, including streams, are cut
// unless the server hangs from now on.
func (m *member) become(c condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = c
	if c == refusing {
		m.close()
		m.turn, m.close = context.WithCancel(context.Background())
	}
}

func (m *member) RoundTrip(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	now, turn := m.now, m.turn
	m.mu.Unlock()
	switch now {
	case hanging:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case refusing:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	ctx, cancel := context.WithCancel(req.Context())
	context.AfterFunc(turn, cancel)
	return m.Server.RoundTrip(req.WithContext(ctx))
}

func (m *member) config() *rest.Config {
	return &rest.Config{
		Host:          "https://" + m.Name + ".invalid",
		BearerToken:   "token",
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return m },
	}
}

// crowded is a fleet of which some members hang: those that are contacted
// first.
type crowded struct {
	t          *testing.T
	cc         *clustercache.ClusterCache
	bad, good  []client.ObjectKey
	members    map[client.ObjectKey]*member
	goroutines int
}

func newCrowded(t *testing.T, bad, good int) *crowded {
	t.Helper()
	f := &crowded{t: t, members: map[client.ObjectKey]*member{}}
	configs := map[client.ObjectKey]*rest.Config{}
	for i := range bad + good {
		k := fleettest.Key(fmt.Sprintf("c%04d", i))
		f.members[k] = newMember(k.Name)
		configs[k] = f.members[k].config()
		if i < bad {
			f.bad = append(f.bad, k)
		} else {
			f.good = append(f.good, k)
		}
	}
	r, err := resolver.Static(configs)
	require.NoError(t, err)
	o := fleettest.SilentWith(r, prometheus.NewRegistry())
	o.Logger = funcr.New(func(string, string) {}, funcr.Options{})
	f.cc = fleettest.Start(t, o)
	synctest.Wait()
	return f
}

func (f *crowded) all(keys []client.ObjectKey, c condition) {
	for _, k := range keys {
		f.members[k].become(c)
	}
}

// connect returns how long each good member takes to connect, from now on or
// from the next attempt that its own back-off has scheduled. That time is
// random, and the longest of a few hundred differ by seconds.
func (f *crowded) connect(begin func()) []time.Duration {
	f.t.Helper()
	received := fleettest.Follow(f.t, f.cc)
	synctest.Wait()
	for len(received.Events) > 0 {
		<-received.Events
	}
	began := time.Now()
	missing := map[client.ObjectKey]time.Time{}
	for _, k := range f.good {
		missing[k] = began
		if s, err := f.cc.Cluster(k).Status(); err == nil && s.NextAttempt.After(began) {
			missing[k] = s.NextAttempt
		}
	}
	begin()
	var took []time.Duration
	for len(missing) > 0 {
		select {
		case e := <-received.Events:
			if due, is := missing[e.Cluster]; is && e.Type == events.Connected {
				delete(missing, e.Cluster)
				took = append(took, time.Since(due))
			}
		case <-time.After(10 * time.Minute):
			require.FailNow(f.t, "not connected", "%d clusters", len(missing))
		}
	}
	return took
}

// firstWatch returns how long it takes for each good member until a kind can be
// read.
func (f *crowded) firstWatch(kind client.Object) []time.Duration {
	f.t.Helper()
	for _, k := range f.bad {
		_, err := f.cc.Cluster(k).Watch(f.t.Context(), kind)
		require.NoError(f.t, err)
	}
	took := make([]time.Duration, len(f.good))
	var waiting sync.WaitGroup
	for i, k := range f.good {
		w, err := f.cc.Cluster(k).Watch(f.t.Context(), kind)
		require.NoError(f.t, err)
		began := time.Now()
		waiting.Go(func() {
			if err := w.WaitForSync(f.t.Context()); err != nil {
				f.t.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	waiting.Wait()
	return took
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// measure returns the 99th percentiles of the good members.
func (f *crowded) measure() map[string]time.Duration {
	out := map[string]time.Duration{}
	f.all(f.bad, hanging)
	out["connect"] = p99(f.connect(func() {
		for _, k := range append(slices.Clone(f.bad), f.good...) {
			require.NoError(f.t, f.cc.Cluster(k).Engage())
		}
	}))
	synctest.Wait()
	f.goroutines = runtime.NumGoroutine()

	f.all(f.bad, answering)
	time.Sleep(2 * time.Minute)
	f.all(f.bad, hanging)
	out["first kind"] = p99(f.firstWatch(&corev1.ConfigMap{}))

	f.all(f.bad, answering)
	time.Sleep(2 * time.Minute)
	f.all(f.bad, hanging)
	out["second kind"] = p99(f.firstWatch(&corev1.Secret{}))

	f.all(f.good, refusing)
	time.Sleep(2 * time.Minute)
	out["return"] = p99(f.connect(func() { f.all(f.good, answering) }))
	return out
}

// TestGuaranteeIsolationByNumber: if 400 of 1,000 clusters hang, with default
// options, they delay the others by at most a second. The hanging ones come
// first everywhere.
func TestGuaranteeIsolationByNumber(t *testing.T) {
	bad, good := repeat.Times(400), repeat.Times(600)
	var without, with map[string]time.Duration
	synctest.Test(t, func(t *testing.T) { without = newCrowded(t, 0, good).measure() })
	synctest.Test(t, func(t *testing.T) {
		f := newCrowded(t, bad, good)
		before := runtime.NumGoroutine()
		with = f.measure()
		require.Less(t, f.goroutines-before, 5*(bad+good), "goroutines are bounded by clusters")
	})
	t.Logf("p99 without: %v, with: %v", without, with)
	for what, took := range with {
		require.LessOrEqual(t, took-without[what], time.Second, what)
	}
}
