// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/directory"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// world is one run: the clusters, the library, and the observations of both.
type world struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	eyes     *rand.Rand // of additional reads
	families []*family
	start    time.Time

	names *directory.Directory
	sites []*site
	kinds []*kind
	modes []clustercache.ReadMode
	gates map[*kind]func() // called by handlers
	paged bool             // lists are requested in pages
	// gauges is the kind of the aggregated API, if the run has that, and
	// streams the code with which it refuses streamed lists.
	gauges     *kind
	aggregated *fakeapi.Kind
	streams    int
	timeLimit  time.Duration // of watches
	before     map[*site]*calm
	// limited, if set, reports which selections may be read.
	limited func(selection) bool

	cc      *clustercache.ClusterCache
	metrics *prometheus.Registry
	ended   chan error
	cancel  context.CancelFunc

	serial int // of values

	mu         sync.Mutex // protects the fields below
	subjects   []*subject
	left       []*subject // given up
	chronicles map[*site]*chronicle
	failures   []string
	log        []string
	loud       []string // lines of the library's log
	phases     map[client.ObjectKey][]events.Cluster
	shown      map[string]bool // uids of objects that reads have returned
	answers    map[question][]answer
}

func newWorld(t *testing.T, seed uint64, families []*family) *world {
	w := &world{
		t:          t,
		seed:       seed,
		rng:        rand.New(rand.NewPCG(seed, 1)),
		eyes:       rand.New(rand.NewPCG(seed, 4)),
		families:   families,
		start:      time.Now(),
		names:      directory.New(),
		gates:      map[*kind]func(){},
		chronicles: map[*site]*chronicle{},
		phases:     map[client.ObjectKey][]events.Cluster{},
		shown:      map[string]bool{},
		answers:    map[question][]answer{},
		kinds:      []*kind{configMaps, widgets},
		modes:      []clustercache.ReadMode{clustercache.PreferCache, clustercache.CacheOnly},
	}
	if w.chance(3) {
		w.modes = append(w.modes, clustercache.AutoWatch)
	}
	w.join()
	return w
}

func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// clock returns how much time has passed.
func (w *world) clock() string { return fmt.Sprintf("%9.3fs", time.Since(w.start).Seconds()) }

func (w *world) trace(format string, args ...any) {
	line := w.clock() + " " + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, line)
}

// maxFailures is how many failures of one run are kept.
const maxFailures = 20

func (w *world) fail(format string, args ...any) {
	line := w.clock() + " " + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < maxFailures {
		w.failures = append(w.failures, line)
	}
	w.log = append(w.log, line+" <<< FAILURE")
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failures) > 0
}

// auditInterval is the interval of audits, which find the differences that
// nothing else can find.
const auditInterval = time.Minute

func (w *world) options() clustercache.Options {
	w.metrics = prometheus.NewRegistry()
	o := clustercache.Options{
		Resolver: w.names, Discover: true, QPS: -1, MetricsRegisterer: w.metrics, UserAgent: "simulation",
		Logger: funcr.New(w.logged, funcr.Options{Verbosity: 10}), Dial: w.strayed,
	}
	// Not every version of the library that is tested has this option.
	if f := reflect.ValueOf(&o.Informers).Elem().FieldByName("AuditInterval"); f.IsValid() {
		interval := auditInterval
		if !w.audited() {
			interval = time.Hour // otherwise audits would mend the faults that a resume has to mend
		}
		f.SetInt(int64(interval))
	}
	if w.chance(4) {
		o.Informers.PagedLists = true
		o.Informers.PageSize = 3
	}
	w.paged = o.Informers.PagedLists
	w.timeLimit = informerpool.DefaultWatchTimeout
	if rand.New(rand.NewPCG(w.seed, 5)).IntN(4) == 0 {
		w.timeLimit = time.Minute // watches reach their limit again and again
	}
	o.Informers.WatchTimeout = w.timeLimit
	for _, f := range w.families {
		if f.options != nil {
			f.options(w, &o)
		}
	}
	return o
}

// add adds a cluster with a few objects.
func (w *world) add(name string) *site {
	s := newSite(w, name, w.keyOf(name))
	w.mu.Lock()
	w.chronicles[s] = newChronicle()
	w.sites = append(w.sites, s)
	w.mu.Unlock()
	w.fillWith(s.current(), slices.Concat(w.kinds, w.bystanders()))
	w.observe()
	w.names.Set(s.key, s.config)
	return s
}

// oddKeys are pairs of cluster names, some of which are mistaken for each other
// if they are encoded carelessly.
var oddKeys = [][2]client.ObjectKey{
	{{Name: "hub"}, {Namespace: "hub", Name: "hub"}},
	{{Namespace: "a", Name: "b"}, {Name: "a/b"}},
	{{Namespace: "a/b", Name: "c"}, {Namespace: "a", Name: "b/c"}},
	{{Name: "arn:aws:eks:eu-west-1:123456789012:cluster/prod"},
		{Name: "arn:aws:eks:eu-west-1:123456789012:cluster/Prod"}},
	{{Namespace: "sim", Name: strings.Repeat("n", 252) + "1"},
		{Namespace: "sim", Name: strings.Repeat("n", 252) + "2"}},
	{{Name: "ünicøde ✓"}, {Name: "u\u0308nicøde ✓"}},
	{{Namespace: "sim", Name: "../../etc"}, {Namespace: "sim", Name: "etc?x=%2e%2e#f"}},
	{{Namespace: " ", Name: "-"}, {Name: "-"}},
	{{Namespace: "sim", Name: "_all"}, {Namespace: "SIM", Name: "_all"}},
}

// keyOf returns the key of a cluster; one seed in four has odd names.
func (w *world) keyOf(name string) client.ObjectKey {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	if rng.IntN(4) > 0 {
		return client.ObjectKey{Namespace: "sim", Name: name}
	}
	pair := oddKeys[rng.IntN(len(oddKeys))]
	switch name {
	case "one":
		return pair[0]
	case "two":
		return pair[1]
	}
	return client.ObjectKey{Namespace: "sim", Name: name}
}

// stable is how many objects of each kind are never deleted.
const stable = 4

// fill stores the permanent objects of all kinds that are currently served.
func (w *world) fill(b *backend) { w.fillWith(b, w.kinds) }

func (w *world) fillWith(b *backend, kinds []*kind) {
	for _, k := range kinds {
		k, ok := writable(b, k)
		if !ok {
			continue
		}
		for i := range stable {
			w.must(b.store(k.object(space(i), fmt.Sprintf("stable-%d", i), tier(i), w.value(b))))
			w.observe()
		}
	}
}

func space(i int) string { return []string{"a", "b"}[i%2] }
func tier(i int) string  { return []string{"gold", "gold", "tin"}[i%3] }

// value returns a value that no object has had before.
func (w *world) value(b *backend) string {
	w.serial++
	return fmt.Sprintf("%s-%d", b.name, w.serial)
}

func (w *world) must(err error) {
	if err != nil {
		w.fail("the simulation itself: %v", err)
	}
}

// run starts the library.
func (w *world) run() {
	cc, err := clustercache.New(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.cc = cc
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- cc.Start(ctx) }()
	go func() {
		for e := range cc.ClusterEvents(ctx) {
			w.trace("%s: %s, %s %s", e.Cluster, e.Type, e.Phase, e.Reason)
			w.look("event", fmt.Sprintf("%+v %#v", e, e))
			w.mu.Lock()
			w.phases[e.Cluster] = append(w.phases[e.Cluster], e)
			w.mu.Unlock()
		}
	}()
}

// stop ends everything, and fails the run if the library takes too long.
func (w *world) stop() {
	for _, s := range w.sites {
		s.net.Up()
	}
	began := time.Now()
	w.cancel()
	select {
	case err := <-w.ended:
		if err != nil {
			w.fail("Start: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			w.fail("stop took %s", took)
		}
	case <-time.After(time.Minute):
		w.fail("Start does not return")
	}
	for _, s := range w.sites {
		s.stop()
	}
}

// pause lets time pass.
func (w *world) pause(d time.Duration) { time.Sleep(d) }

// shortPause lets up to d pass.
func (w *world) shortPause(d time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(d)) + 1)) }

// await waits until everything is as it should be. Reads must be right within
// the bound, and handlers that are busy then once they are idle.
func (w *world) await(bound time.Duration, what string) bool {
	began := time.Now()
	var wrong []string
	for {
		late := time.Since(began) > bound
		wrong = nil
		for _, s := range w.living() {
			wrong = append(wrong, w.quick(s, !late)...)
		}
		if len(wrong) == 0 {
			for _, s := range w.living() {
				wrong = append(wrong, w.check(s, true)...)
			}
		}
		if len(wrong) == 0 {
			w.trace("%s: equal after %s", what, time.Since(began))
			return true
		}
		if late {
			break
		}
		w.pause(time.Second)
	}
	for _, d := range wrong {
		w.fail("%s, %s later: %s", what, time.Since(began), d)
	}
	for _, s := range w.living() {
		status, err := w.cc.Cluster(s.key).Status()
		w.trace("%s: %s %s, connected %t, stale %t, %d of %d synced, last error %v, %v", s.name, status.Phase,
			status.Reason, status.Connected, status.Stale,
			status.Synced, status.Informers, status.LastError, err)
		for _, sub := range w.watching(s) {
			ws := sub.watch.Status()
			w.trace("  %s: %s synced %t at %s, rejected %d, last error %v", sub.selection, ws.Informer.State,
				ws.Informer.Synced, ws.Informer.ResourceVersion,
				ws.Informer.Rejected, ws.LastError)
		}
	}
	return false
}

func (w *world) living() []*site {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.sites), func(s *site) bool { return s.removed })
}

// alternate compares the sequence of cluster events with its guarantees.
func (w *world) alternate() {
	w.mu.Lock()
	phases := w.phases
	w.mu.Unlock()
	for key, received := range phases {
		connected := false
		for _, e := range received {
			switch e.Type {
			case events.Connected:
				if connected {
					w.fail("%s: Connected twice", key)
				}
				connected = true
			case events.Disconnected:
				if !connected {
					w.fail("%s: Disconnected twice", key)
				}
				connected = false
			case events.Removed:
				connected = false
			}
		}
	}
}

// happened counts cluster events.
func (w *world) happened(s *site, what events.ClusterType) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.phases[s.key] {
		if e.Type == what {
			n++
		}
	}
	return n
}

func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.familyNames()
	out := fmt.Sprintf("seed %d (%s):\n  %s\nonce more: go test ./test/simulation -run TestSeeds -seed %d -faults %s "+
		"-story",
		w.seed, strings.Join(names, ","), strings.Join(w.failures, "\n  "), w.seed, strings.Join(names, "+"))
	if *storied {
		out += "\n" + strings.Join(w.log, "\n")
	}
	return out
}

func asStatus(err error, to *apierrors.APIStatus) bool { return errors.As(err, to) }
