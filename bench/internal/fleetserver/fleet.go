// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Options configures a Fleet.
type Options struct {
	// Clusters is the number of clusters.
	Clusters int
	// Objects is the number of objects of each kind and cluster.
	Objects int
	// Custom is the number of custom kinds, each with as many objects.
	Custom int
	// Replicas is how many Pods share labels and an owner; see
	// objects.Generator.
	Replicas int
	// Seed makes the objects differ from those of other seeds.
	Seed uint64
	// Bookmarks is how often an idle watch gets a bookmark. Defaults to 1 min,
	// as in kube-apiserver.
	Bookmarks time.Duration
}

// Fleet serves clusters. Its methods are safe for concurrent use.
type Fleet struct {
	options Options
	kinds   []objects.Kind
	// managed are the managedFields of the kinds.
	managed []*objects.Managed
	// paths serves what is no resource, and is the same in all clusters:
	// discovery, readiness, version.
	paths    *fakeapi.Server
	clusters []*cluster
	counts   counts

	mu    sync.Mutex // protects churn
	churn *churn
}

// counts are measure.Counts that change.
type counts struct {
	live, connections, opened, resumed            atomic.Int64
	lists, streams, watches, history, kube, other atomic.Int64
	objects, sent                                 atomic.Int64
}

// Start starts the servers.
func Start(o Options) (*Fleet, error) {
	if o.Bookmarks == 0 {
		o.Bookmarks = time.Minute
	}
	f := &Fleet{options: o, kinds: slices.Clone(objects.Mix)}
	var custom []fakeapi.Kind
	for n := range o.Custom {
		k := objects.Custom(n)
		f.kinds = append(f.kinds, k)
		custom = append(custom, fakeapi.Kind{
			Group:    k.GVK.Group,
			Kind:     k.GVK.Kind,
			Versions: []string{k.GVK.Version},
			Resource: k.Resource,
			Singular: strings.ToLower(k.GVK.Kind),
		})
	}
	f.paths = fakeapi.New(fakeapi.Options{Kinds: custom})
	for _, k := range f.kinds {
		f.managed = append(f.managed, objects.NewManaged(k))
	}
	block, err := freeBlock()
	if err != nil {
		return nil, err
	}
	for i := range o.Clusters {
		c, err := newCluster(f, block, i)
		if err == nil {
			f.clusters = append(f.clusters, c)
			err = c.up()
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}

	return f, nil
}

// Close ends all servers.
func (f *Fleet) Close() error {
	f.Churn(0)
	return f.Down()
}

// each calls do for each cluster.
func (f *Fleet) each(do func(*cluster) error) error {
	var errs []error
	for _, c := range f.clusters {
		errs = append(errs, do(c))
	}
	return errors.Join(errs...)
}

// Clusters returns the access to the clusters.
func (f *Fleet) Clusters() []measure.Cluster {
	var all []measure.Cluster
	for _, c := range f.clusters {
		all = append(all, c.access())
	}
	return all
}

// Down ends all connections and refuses new ones.
func (f *Fleet) Down() error { return f.each((*cluster).down) }

// Up admits connections again. TLS sessions can be resumed.
func (f *Fleet) Up() error { return f.each((*cluster).up) }

// Restart ends all connections and admits new ones, at which no TLS session can
// be resumed.
func (f *Fleet) Restart() error {
	return f.each(func(c *cluster) error { return errors.Join(c.down(), c.newSessionKeys(), c.up()) })
}

// Forget removes the histories, as compactions do in the long run.
func (f *Fleet) Forget() error {
	return f.each(func(c *cluster) error { c.forget(); return nil })
}

// Change changes one object of each cluster and returns the new states.
func (f *Fleet) Change() []measure.Mark {
	var marks []measure.Mark
	for _, c := range f.clusters {
		marks = append(marks, c.change())
	}
	return marks
}

// marked is how many objects Marks returns, at most.
const marked = 500

// Marks returns the present state of some objects of all clusters: of each the
// one that has changed last, and others at random.
func (f *Fleet) Marks() []measure.Mark {
	var marks []measure.Mark
	for n := range marked {
		c := f.clusters[n*len(f.clusters)/marked]
		t := c.tables[n%len(c.tables)]
		if n%2 == 0 {
			marks = append(marks, c.mark(t, rand.IntN(f.options.Objects)))
		} else {
			marks = append(marks, c.last(t))
		}
	}
	return marks
}

// Counts returns what was counted so far.
func (f *Fleet) Counts() measure.Counts {
	n := &f.counts
	return measure.Counts{
		Live:        int(n.live.Load()),
		Connections: int(n.connections.Load()),
		Opened:      int(n.opened.Load()),
		Resumed:     int(n.resumed.Load()),
		Lists:       int(n.lists.Load()),
		Streams:     int(n.streams.Load()),
		Watches:     int(n.watches.Load()),
		History:     int(n.history.Load()),
		KubeSystem:  int(n.kube.Load()),
		Others:      int(n.other.Load()),
		Objects:     int(n.objects.Load()),
		Sent:        int(n.sent.Load()),
	}
}

// churn changes objects all the time.
type churn struct {
	stop chan struct{}
	done sync.WaitGroup
}

// Churn changes objects of each cluster all the time, perSecond of them in each
// cluster, until it is called again; 0 stops that.
func (f *Fleet) Churn(perSecond float64) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.churn != nil {
		close(f.churn.stop)
		f.churn.done.Wait()
		f.churn = nil
	}
	if perSecond <= 0 || len(f.clusters) == 0 {
		return
	}
	c := &churn{stop: make(chan struct{})}
	c.done.Go(func() { c.run(f, perSecond*float64(len(f.clusters))) })
	f.churn = c
}

// run spreads the changes evenly over time and clusters.
func (c *churn) run(f *Fleet, perSecond float64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began, done := time.Now(), 0
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		for ; float64(done) < time.Since(began).Seconds()*perSecond; done++ {
			f.clusters[done%len(f.clusters)].change()
		}
	}
}

// KindOf returns a kind as the measured programs know it.
func KindOf(k objects.Kind) measure.Kind {
	return measure.Kind{
		Group:    k.GVK.Group,
		Version:  k.GVK.Version,
		Kind:     k.GVK.Kind,
		Resource: k.Resource,
	}
}

// Kinds returns the kinds that the clusters have objects of, without custom
// ones.
func Kinds() []measure.Kind {
	var kinds []measure.Kind
	for _, k := range objects.Mix {
		kinds = append(kinds, KindOf(k))
	}
	return kinds
}

// Custom returns the custom kinds of a Fleet with as many.
func Custom(n int) []measure.Kind {
	var kinds []measure.Kind
	for i := range n {
		kinds = append(kinds, KindOf(objects.Custom(i)))
	}
	return kinds
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%d", i) }
