// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

var fullFlood = flag.Bool("flood", false, "let floods reach the default budget of 2 GiB")

// flooded is a source whose lists, or streams, consist of a beginning and an
// endless repetition.
type flooded struct {
	list         bool // it does not stream
	begin, again string
	mu           sync.Mutex // guards peak: streams end later than the test looks
	peak         int64
	healthy      *pooltest.Server // the other cluster
}

var (
	floodedKey = informerpool.Key{
		Cluster:  types.NamespacedName{Name: "flooded"},
		Resource: pooltest.AnyKind.Resource,
		Kind:     pooltest.AnyKind.Kind,
	}
	healthyKey = informerpool.Key{
		Cluster:  types.NamespacedName{Name: "healthy"},
		Resource: pooltest.Widgets,
		Kind:     "Widget",
	}
)

func (s *flooded) Ready(context.Context, types.NamespacedName) (informerpool.Epoch, error) {
	return "a", nil
}

func (s *flooded) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Cluster == healthyKey.Cluster {
		return s.healthy.List(ctx, r)
	}
	return s.body(), nil
}

func (s *flooded) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Cluster == healthyKey.Cluster {
		return s.healthy.Watch(ctx, r)
	}
	if s.list {
		return nil, apierrors.NewInvalid(pooltest.AnyKind.Resource.GroupVersion().WithKind("ListOptions").GroupKind(),
			"", nil)
	}
	return s.body(), nil
}

func (s *flooded) body() io.ReadCloser {
	block := []byte(strings.Repeat(s.again, (64<<10)/len(s.again)+1))
	return io.NopCloser(io.MultiReader(strings.NewReader(s.begin), &tide{s: s, block: block}))
}

// look measures the heap, and returns the peak so far.
func (s *flooded) look() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = max(s.peak, reachable())
	return s.peak
}

// tide repeats a block, and measures the heap from time to time.
type tide struct {
	s     *flooded
	block []byte
	at    bytes.Reader
	reads int
}

func (e *tide) Read(p []byte) (int, error) {
	if e.at.Len() == 0 {
		e.at.Reset(e.block)
		time.Sleep(time.Second / 10) // so that time-outs expire
		if e.reads++; e.reads%1000 == 200 {
			e.s.look()
		}
	}
	return e.at.Read(p)
}

// TestHazardFloodsWithDefaults: the default limits end lists and streams that
// never end, and the informer reports why. Another cluster is not affected.
func TestHazardFloodsWithDefaults(t *testing.T) {
	const (
		head    = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`
		changed = `{"type":"ADDED","object":{"kind":"Pod",`
	)
	added := func(object string) string { return string(pooltest.Frame("ADDED", []byte(object))) }
	synced := string(pooltest.EndOfList())
	for name, c := range map[string]struct {
		s    *flooded
		want error
	}{
		"list of nothings":        {&flooded{list: true, begin: head + "{}", again: ",{}"}, informerpool.ErrRefused},
		"list of white space":     {&flooded{list: true, begin: head + "{}", again: " "}, informerpool.ErrBudget},
		"list of one key":         {&flooded{list: true, begin: `{"x":"`, again: "x"}, informerpool.ErrBudget},
		"list without a value":    {&flooded{list: true, begin: `{"`, again: "x"}, informerpool.ErrBudget},
		"list of one string":      {&flooded{list: true, begin: head + `"`, again: "x"}, informerpool.ErrBudget},
		"list of one object":      {&flooded{list: true, begin: head + `{"x":"`, again: "x"}, informerpool.ErrBudget},
		"stream of nothings":      {&flooded{again: added(`{}`)}, informerpool.ErrRefused},
		"stream of nulls":         {&flooded{again: added(`null`)}, informerpool.ErrRefused},
		"stream of one string":    {&flooded{begin: changed + `"x":"`, again: "x"}, informerpool.ErrBudget},
		"stream of one key":       {&flooded{begin: changed + `"`, again: "x"}, informerpool.ErrBudget},
		"stream of one array":     {&flooded{begin: changed + `"x":[1`, again: ",1"}, informerpool.ErrBudget},
		"stream of one type":      {&flooded{begin: `{"type":"`, again: "x"}, informerpool.ErrBudget},
		"stream of white space":   {&flooded{again: " \n"}, informerpool.ErrBudget},
		"space in an object":      {&flooded{begin: changed, again: " \n"}, informerpool.ErrBudget},
		"one string after a list": {&flooded{begin: synced + changed + `"x":"`, again: "x"}, informerpool.ErrBudget},
		"space after a list":      {&flooded{begin: synced, again: " \n"}, informerpool.ErrBudget},
		"nulls after a list": {&flooded{begin: synced + added(`null`), again: added(`null`)},
			informerpool.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFlood(t, c.s, c.want) })
		})
	}
}

// testFlood waits until the informer reports why it is flooded, while another
// cluster's objects change each second.
func testFlood(t *testing.T, s *flooded, want error) {
	s.healthy = pooltest.NewServer()
	p, err := informerpool.New(informerpool.Options{Source: s})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	before := reachable()
	healthy := pooltest.AcquireSynced(t, p, healthyKey)
	heard := pooltest.Record(t, p, healthy)

	l := pooltest.Acquire(t, p, floodedKey)
	var said error
	for i := 0; i < 600 && !errors.Is(said, want); i++ {
		requireHealthy(t, s.healthy, healthy, heard, i)
		said = l.Status().LastError
		time.Sleep(time.Second)
	}
	require.ErrorIs(t, said, want)
	require.ErrorContains(t, said, floodedKey.String())
	requireHealthy(t, s.healthy, healthy, heard, 600)
	require.Less(t, s.look()-before, int64(64<<20))
}

// requireHealthy changes an object, and requires that the cache and its events
// show the change at the same moment.
func requireHealthy(t *testing.T, server *pooltest.Server, l *informerpool.Lease, heard *pooltest.Recorder, i int) {
	version := strconv.FormatUint(server.Put("ns", "one", i), 10)
	synctest.Wait()
	o, err := l.Get("ns", "one")
	require.NoError(t, err)
	require.Equal(t, version, o.GetResourceVersion())
	heard.Mu.Lock()
	defer heard.Mu.Unlock()
	require.Empty(t, heard.Wrong)
	require.NotNil(t, heard.Objects["ns/one"])
	require.Equal(t, version, heard.Objects["ns/one"].GetResourceVersion())
}

// reachable is the size of the heap after a collection.
func reachable() int64 { return pooltest.LiveHeap() }

// TestHazardFloodUpToTheDefaultBudget fills two GiB with -flood, and a
// thousandth of it otherwise.
func TestHazardFloodUpToTheDefaultBudget(t *testing.T) {
	o, budget := informerpool.Options{MaxClusterBytes: 2 << 20}, int64(2<<20)
	if *fullFlood {
		o, budget = informerpool.Options{}, informerpool.DefaultMaxClusterBytes
	}
	for name, make := range map[string]func(i int) []byte{
		"labels": func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"labels":{"a":"`+pooltest.Noise(i, 1<<20)+`"}}}`)
		},
		"owners": func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"ownerReferences":[{"uid":"`+pooltest.Noise(i, 1<<20)+`"}]}}`)
		},
		"objects": func(i int) []byte { return pooltest.PodFrame(i, fmt.Sprint("n", i%1000), `}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i, peak, before := 0, int64(0), reachable()
				o := o
				o.Source = &pooltest.Generated{Next: func() []byte {
					if i++; i < 3 || i%100 == 0 && i < 3000 || i%100_000 == 0 {
						peak = max(peak, reachable()) // an informer that fails releases its objects
					}
					return make(i)
				}}
				p, err := informerpool.New(o)
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := pooltest.Acquire(t, p, pooltest.AnyKind)
				require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrBudget)
				full := max(peak, reachable()) - before
				t.Logf("%d objects, %d MiB at most: %v", i, full>>20, l.Status().LastError)
				require.Less(t, full, budget+64<<20)
			})
		})
	}
}

// TestHazardFloodOfDiscovery: discovery documents are read as a whole.
func TestHazardFloodOfDiscovery(t *testing.T) {
	body := `{"kind":"APIResourceList","resources":[{}` + strings.Repeat(",{}", 2<<20) + `]}`
	source := informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
		return informerpool.Endpoint{URL: "http://x.test", Client: &http.Client{Transport: answering(body)}}, nil
	})
	kinds, ok := source.(informerpool.KindSource)
	require.True(t, ok)
	discoverer, ok := source.(informerpool.Discoverer)
	require.True(t, ok)
	key := pooltest.AnyKind
	before := allocated()
	kind, err := kinds.KindOf(t.Context(), informerpool.Request{Key: key})
	require.NoError(t, err)
	require.Empty(t, kind)
	_, err = discoverer.Discover(t.Context(), informerpool.Request{Key: key})
	require.Error(t, err)
	require.Less(t, allocated()-before, int64(128<<20), "two bodies that grow")
}

// answering answers every request with one document.
type answering string

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(string(a))),
	}, nil
}

// allocated is how much memory has been allocated so far.
func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc) //nolint:gosec // it is small
}
