// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

const (
	// permitted is how many connects, look-ups and lists run at a time; several
	// times as many clusters hang.
	permitted = 4
	// beside is how much longer anything may take beside clusters that hang.
	beside = time.Second
)

// stage is the point at which connecting to a cluster hangs.
type stage struct {
	name  string
	paged bool // lists come in pages
	// at reports whether a request hangs; if it is nil, no request gets that
	// far.
	at func(*fakeapi.Request) bool
	// half is the part of the response that is sent before it hangs.
	half string
}

func stages() []stage {
	path := func(paths ...string) func(*fakeapi.Request) bool {
		return func(r *fakeapi.Request) bool { return slices.Contains(paths, r.Path) }
	}
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"half","uid":"u",` +
		`"resourceVersion":"101"}}`
	return []stage{
		{name: "dial"},
		{name: "handshake"},
		{name: "probe", at: path("/readyz", "/version")},
		{name: "identity", at: func(r *fakeapi.Request) bool { return r.Resource == "namespaces" }},
		{name: "discovery", at: path("/api", "/apis", "/api/v1")},
		{
			name:  "list",
			paged: true,
			at:    func(r *fakeapi.Request) bool { return r.Resource == "configmaps" && r.Verb == "list" },
			half: `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"200"},"items":[` +
				object + `,{"metadata":`,
		},
		{
			name: "streamed list", at: func(r *fakeapi.Request) bool { return r.Resource == "configmaps" && r.Stream },
			half: `{"type":"ADDED","object":` + object + "}\n" + `{"type":"ADDED",`,
		},
	}
}

// stuck are clusters that hang at a stage.
type stuck struct {
	stage

	sites []*site
	here  atomic.Int32 // connections or requests that have reached the stage
	sync.WaitGroup
}

// add adds one more cluster.
func (x *stuck) add(w *world, key client.ObjectKey) *site {
	var s *site
	switch x.name {
	case "dial":
		s = &site{w: w, name: key.Name, key: key, net: memnet.Listen()}
		s.net.Mute()
		s.stop = s.net.Up
	case "handshake":
		s = &site{w: w, name: key.Name, key: key, net: memnet.Listen()}
		x.Go(func() { x.take(s.net) })
		s.stop = func() { _ = s.net.Close(); s.net.Reset() }
	default:
		s = newSite(w, key.Name, key)
		w.fill(s.current())
		s.put("stuck", x.ask)
	}
	s.host = key.Name + ".sim.test"
	x.sites = append(x.sites, s)
	return s
}

// take accepts connections, and sends nothing.
func (x *stuck) take(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		x.here.Add(1)
		defer func() { _ = c.Close() }()
	}
}

func (x *stuck) ask(r *fakeapi.Request) *fakeapi.Fault {
	if !x.at(r) {
		return nil
	}
	x.here.Add(1)
	return &fakeapi.Fault{Answer: func(w http.ResponseWriter, r *http.Request) {
		if x.half != "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(x.half))
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}
		fakeapi.Hang(w, r)
	}}
}

// reached returns how many connections or requests have reached the stage.
func (x *stuck) reached() int {
	n := int(x.here.Load())
	if x.name == "dial" {
		for _, s := range x.sites {
			n += s.net.Dials()
		}
	}
	return n
}

// hungNeighbours measures the cost of hung clusters for the others. More
// clusters than there are permits hang, at a stage of the seed's choice.
func hungNeighbours(w *world) {
	all := stages()
	x := &stuck{stage: all[w.rng.IntN(len(all))]}
	w.trace("clusters hang at the %s", x.name)
	w.families[0].options = func(w *world, o *clustercache.Options) {
		o.ConnectConcurrency, o.Informers.ListConcurrency, o.ProbeConcurrency = permitted, permitted, permitted
		o.Informers.PagedLists = x.paged
		w.paged = x.paged
	}
	one := w.add("one")
	w.run()
	w.pause(time.Second)
	w.follow(one, selection{kind: configMaps})
	three := w.add("three")
	without := w.took("a first connection without hung clusters",
		func(ctx context.Context) error { return w.connected(ctx, three) })
	alone := w.took("a return without hung clusters", func(ctx context.Context) error { return w.back(ctx, one) })
	for range 2 {
		alone = max(alone, w.took("a return without hung clusters",
			func(ctx context.Context) error { return w.back(ctx, one) }))
	}

	hung := 5*permitted + w.rng.IntN(5*permitted)
	for i := range hung {
		s := x.add(w, client.ObjectKey{Namespace: "hung", Name: fmt.Sprintf("h%d", i)})
		w.names.Set(s.key, s.config)
		_, err := w.cc.Cluster(s.key).Watch(context.Background(), clustercache.Kind(configMaps.gvk))
		w.must(err)
	}
	w.shortPause(time.Second)
	two := w.add("two")
	w.within(without+beside, "a first connection", func(ctx context.Context) error { return w.connected(ctx, two) })
	w.shortPause(3 * time.Second)
	w.within(beside, "a first watch of a kind", func(ctx context.Context) error {
		return w.follow(one, selection{kind: widgets}).watch.WaitForSync(ctx)
	})
	w.within(beside, "a first watch", func(ctx context.Context) error {
		return w.follow(two, selection{kind: configMaps}).watch.WaitForSync(ctx)
	})
	w.within(alone+beside, "a return", func(ctx context.Context) error { return w.back(ctx, one) })
	w.await(10*time.Second, "beside hung clusters")
	if n := x.reached(); n <= permitted {
		w.fail("the simulation itself: %d of %d clusters have got to the %s", n, hung, x.name)
	}
	w.finish()
	for _, s := range x.sites {
		s.stop()
	}
	x.Wait()
}

// connected waits until a cluster is connected.
func (w *world) connected(ctx context.Context, s *site) error {
	for w.cc.Cluster(s.key).WaitConnected(ctx) != nil && ctx.Err() == nil {
		w.pause(10 * time.Millisecond) // the cluster is not known yet
	}
	return w.cc.Cluster(s.key).WaitConnected(ctx)
}

// back makes every informer of a site list again, and waits for that.
func (w *world) back(ctx context.Context, s *site) error {
	w.restart(s)
	w.must(s.current().store(configMaps.object("a", "stable-0", tier(0), w.value(s.current()))))
	w.observe()
	for {
		wrong := w.quick(s, true)
		if len(wrong) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %s", context.Cause(ctx), strings.Join(wrong, "; "))
		}
		w.pause(20 * time.Millisecond)
	}
}

// took measures how long do takes.
func (w *world) took(what string, do func(context.Context) error) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	if err := do(ctx); err != nil {
		w.fail("%s: %v", what, err)
	}
	w.trace("%s took %s", what, time.Since(began))
	return time.Since(began)
}

// within fails the run if do takes longer than it may beside clusters that
// hang.
func (w *world) within(bound time.Duration, what string, do func(context.Context) error) {
	if took := w.took(what, do); took > bound {
		w.fail("%s took %s beside clusters that hang, and may take %s", what, took, bound)
	}
}
