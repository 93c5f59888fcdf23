// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// readLabel is the label that handlers read.
const readLabel = "app.kubernetes.io/name"

// listLabel selects the Pods of a List: one in listedOf.
const (
	listLabel = "example.com/tier"
	listValue = "canary"
	listedOf  = 8
)

// read measures how long it takes to read cached objects. All caches hold the
// objects of one namespace, except those that are listed from, in one process.
func read(ctx context.Context, t task) (measure.Figures, error) {
	testing.Init()
	if err := flag.Set("test.benchtime", t.RoundTime); err != nil {
		return nil, err
	}
	b, err := newBookshelf(ctx, subjects.ConfigOf(t.Cluster))
	if err != nil {
		return nil, err
	}
	readings := b.readings()
	for range 2 { // an object that is read twice is hot
		for name, x := range readings {
			for i := range x.n {
				if err := x.do(i); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}

	taken := map[string][]float64{}
	for round := range t.Rounds {
		for _, c := range comparisons {
			ours, peer := c.measure(readings, round%2 == 1)
			taken[c.ours], taken[c.peer] = append(taken[c.ours], ours), append(taken[c.peer], peer)
			taken[c.name()] = append(taken[c.name()], ours/peer)
		}
	}

	f := measure.Figures{}
	for name, values := range taken {
		f[name] = median(values)
	}

	return f, nil
}

// reading reads one of n objects.
type reading struct {
	n  int
	do func(i int) error
}

// measure measures both sides in turn, so that anything that slows down the
// machine for a while affects both alike.
func (c comparison) measure(readings map[string]reading, peerFirst bool) (ours, peer float64) {
	if peerFirst {
		peer = readings[c.peer].nanoseconds()
		return readings[c.ours].nanoseconds(), peer
	}
	ours = readings[c.ours].nanoseconds()
	return ours, readings[c.peer].nanoseconds()
}

// nanoseconds returns how long a read takes on average, over the objects in
// turn.
func (x reading) nanoseconds() float64 {
	result := testing.Benchmark(func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := x.do(i % x.n); err != nil {
				b.Fatal(err)
			}
		}
	})
	return float64(result.T.Nanoseconds()) / float64(result.N)
}

// Names of readings.
const (
	intoUnstructured = "into unstructured"
	intoTypedHot     = "into typed, hot"
	intoTypedShared  = "into typed, shared"
	intoTyped        = "into typed, decoded"
	intoTypedInTurn  = "into typed, in turn over four times what the decoded cache holds"
	intoMetadata     = "into metadata"
	bareUnstructured = "into unstructured, without managedFields"
	bareMetadata     = "into metadata, without managedFields"
	getOnly          = "Get without decoding"
	nameInHandler    = "name in a handler"
	labelInHandler   = "label in a handler"
	peerUnstructured = "Get into unstructured"
	peerTyped        = "Get into typed"
	peerMetadata     = "Get into metadata"
	peerName         = "name of a shared unstructured"
	peerLabel        = "label of a shared unstructured"
	listTyped        = "List by label into typed, an eighth of the Pods"
	peerList         = "List by label into typed"

	// Prefixes of the readings of other kinds than Pods.
	ofDeployment = "Deployment "
	ofSecret     = "Secret "
)

// longest are the bounds of readings in nanoseconds, whatever the peer takes.
var longest = map[string]*bound{ofSecret + intoMetadata: atMost(5000)}

// comparison names a reading of ours, the peer's reading, and a bound for the
// ratio of their times.
type comparison struct {
	ours, peer string
	bound      *bound
}

func (c comparison) name() string { return c.ours + " / " + c.peer }

// comparisons mostly use peerUnstructured, controller-runtime's default, with
// which a controller for any kind would read.
var comparisons = []comparison{
	{intoUnstructured, peerUnstructured, atMost(1)},
	{intoTypedHot, peerTyped, atMost(1.05)},
	{intoTypedShared, peerTyped, atMost(0.15)},
	{intoTyped, peerTyped, atMost(2.5)},
	{intoTypedInTurn, peerTyped, atMost(2.5)},
	{intoTypedInTurn, intoTyped, atMost(1.05)},
	{intoMetadata, peerUnstructured, atMost(0.2)},
	{intoMetadata, peerMetadata, atMost(2)},
	{bareUnstructured, peerUnstructured, atMost(0.7)},
	{bareMetadata, peerMetadata, atMost(1.4)},
	{nameInHandler, peerUnstructured, atMost(0.2)},
	{nameInHandler, peerName, nil},
	{labelInHandler, peerUnstructured, atMost(0.2)},
	{labelInHandler, peerLabel, nil},
	{getOnly, peerUnstructured, nil},
	{ofDeployment + intoTypedHot, ofDeployment + peerTyped, atMost(1.05)},
	{ofDeployment + intoTypedShared, ofDeployment + peerTyped, atMost(0.15)},
	{ofDeployment + intoTyped, ofDeployment + peerTyped, atMost(1.8)},
	{ofDeployment + intoTypedInTurn, ofDeployment + peerTyped, atMost(1.8)},
	{ofDeployment + intoTypedInTurn, ofDeployment + intoTyped, atMost(1.05)},
	{ofSecret + intoMetadata, ofSecret + peerMetadata, nil},
	{listTyped, peerList, atMost(1.2)},
}

// What decoded objects take, in bytes.
const (
	decodedPod        = 16 << 10
	decodedDeployment = 12 << 10
)

// bookshelf holds the same objects in every cache.
type bookshelf struct {
	pods, deployments, secrets shelf
	// ours and peer hold the Pods of all namespaces, to be listed.
	ours, peer client.Reader
}

// shelf holds the objects of one kind and namespace in every cache.
type shelf struct {
	kind      kind
	hot, cold *fleet // with a cache of decoded objects, and without
	full      *fleet // with one that holds a quarter of the objects, or nil
	bare      *fleet // without managedFields
	peer      cache.Cache
	keys      []client.ObjectKey
	packed    []*informerpool.Object
	maps      []*unstructured.Unstructured // in the form that handlers of controller-runtime receive
}

func newBookshelf(ctx context.Context, config *rest.Config) (*bookshelf, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	b := &bookshelf{}
	for _, x := range []struct {
		at      *shelf
		kind    kind
		decoded int // what an object takes, in bytes, if they are read in turn
	}{
		{&b.pods, pods, decodedPod},
		{&b.deployments, deployments, decodedDeployment},
		{&b.secrets, secrets, 0},
	} {
		x.at.kind = x.kind
		if err := x.at.fill(ctx, config, c, x.decoded); err != nil {
			return nil, fmt.Errorf("%s: %w", x.kind.kind.Kind, err)
		}
	}

	if b.ours, err = newReader(ctx, config, pods); err != nil {
		return nil, err
	}
	all := &runtimeCaches{config: config, client: c, form: asTyped}
	if err := all.watch(ctx, pods, ""); err != nil {
		return nil, err
	}
	b.peer = all.cache
	listed, expected := &corev1.PodList{}, &corev1.PodList{}
	err = errors.Join(b.ours.List(ctx, listed, toList), b.peer.List(ctx, expected, toList))
	if err == nil && (len(listed.Items) == 0 || len(listed.Items) != len(expected.Items)) {
		err = fmt.Errorf("%d Pods are listed, and %d by the peer", len(listed.Items), len(expected.Items))
	}

	return b, err
}

// toList selects the Pods of a List.
var toList = client.MatchingLabels{listLabel: listValue}

// newReader returns the reader of a ClusterCache, with its defaults, that holds
// all objects of the kind.
func newReader(ctx context.Context, config *rest.Config, k kind) (client.Reader, error) {
	config = rest.CopyConfig(config)
	config.QPS = 0 // the ClusterCache's default
	key := client.ObjectKey{Namespace: "fleet", Name: "real"}
	static, err := resolver.Static(map[client.ObjectKey]*rest.Config{key: config})
	if err != nil {
		return nil, err
	}
	clusters, err := clustercache.New(clustercache.Options{Resolver: static, ReadMode: clustercache.CacheOnly})
	if err != nil {
		return nil, err
	}
	go func() { _ = clusters.Start(ctx) }() // for as long as the process runs
	w, err := clusters.Cluster(key).Watch(ctx, clustercache.Kind(k.kind))
	if err != nil {
		return nil, err
	}

	return clusters.Cluster(key).Reader(), w.WaitForSync(ctx)
}

// fill fills the caches. decoded is what an object takes, in bytes, or zero if
// none is read from a cache that is too small.
func (s *shelf) fill(ctx context.Context, config *rest.Config, c *http.Client, decoded int) error {
	ns := objects.NamespaceOf(0)
	open := func(o informerpool.Options) (*fleet, error) {
		f, err := newFleet(c, config.Host, o)
		if err != nil {
			return nil, err
		}
		return f, f.watch(ctx, s.kind, ns)
	}
	for at, o := range map[**fleet]informerpool.Options{
		&s.hot:  {},
		&s.cold: {DecodedBytes: -1},
		&s.bare: {DropManagedFields: true},
	} {
		var err error
		if *at, err = open(o); err != nil {
			return err
		}
	}

	r := &runtimeCaches{config: config, client: c, form: asUnstructured}
	if err := r.watch(ctx, s.kind, ns); err != nil {
		return err
	}
	s.peer = r.cache
	for _, form := range []form{asTyped, asMetadata} {
		if _, err := s.peer.GetInformer(ctx, form(s.kind)); err != nil {
			return err
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(s.kind.kind)
	if err := s.peer.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		u := &list.Items[i]
		o, err := s.hot.leases[0].Get(u.GetNamespace(), u.GetName())
		if err != nil {
			return err
		}
		s.keys, s.packed, s.maps = append(s.keys, client.ObjectKeyFromObject(u)), append(s.packed, o), append(s.maps, u)
	}
	if len(s.keys) == 0 {
		return fmt.Errorf("namespace %s has none", ns)
	}
	if decoded == 0 {
		return nil
	}
	var err error
	s.full, err = open(informerpool.Options{DecodedBytes: int64(len(s.keys) * decoded / 4)})

	return err
}

// into returns a reading that decodes the objects of a cache of ours.
func (s *shelf) into(f *fleet, dst func() runtime.Object) reading {
	return reading{len(s.keys), func(i int) error {
		return f.leases[0].GetInto(s.keys[i].Namespace, s.keys[i].Name, dst())
	}}
}

func (s *shelf) typed() runtime.Object { return s.kind.typed() }

func newUnstructured() runtime.Object { return &unstructured.Unstructured{} }

func newMetadata() runtime.Object { return &metav1.PartialObjectMetadata{} }

// get returns a reading that only gets an object, and hands it on.
func (s *shelf) get(use func(*informerpool.Object) error) reading {
	return reading{len(s.keys), func(i int) error {
		o, err := s.hot.leases[0].Get(s.keys[i].Namespace, s.keys[i].Name)
		if err != nil {
			return err
		}
		return use(o)
	}}
}

// shared returns a reading without a copy.
func (s *shelf) shared() reading {
	return s.get(func(o *informerpool.Object) error { return s.hot.pool.DecodeShared(o, s.kind.typed()) })
}

// peers returns a reading of the peer's.
func (s *shelf) peers(f form) reading {
	return reading{len(s.keys), func(i int) error { return s.peer.Get(context.Background(), s.keys[i], f(s.kind)) }}
}

// readings returns the ways to read, by name.
func (b *bookshelf) readings() map[string]reading {
	read := 0 // uses the results, so that no read is optimized away
	note := func(s string) error { read += len(s); return nil }
	handler := func(do func(i int) string) reading {
		return reading{len(b.pods.keys), func(i int) error { return note(do(i)) }}
	}
	list := func(from client.Reader) reading {
		return reading{1, func(int) error { return from.List(context.Background(), &corev1.PodList{}, toList) }}
	}
	p, d, s := &b.pods, &b.deployments, &b.secrets

	return map[string]reading{
		intoUnstructured: p.into(p.hot, newUnstructured),
		intoTypedHot:     p.into(p.hot, p.typed),
		intoTyped:        p.into(p.cold, p.typed),
		intoTypedInTurn:  p.into(p.full, p.typed),
		intoTypedShared:  p.shared(),
		intoMetadata:     p.into(p.hot, newMetadata),
		bareUnstructured: p.into(p.bare, newUnstructured),
		bareMetadata:     p.into(p.bare, newMetadata),
		getOnly:          p.get(func(*informerpool.Object) error { return nil }),
		nameInHandler:    handler(func(i int) string { return p.packed[i].GetName() }),
		labelInHandler:   handler(func(i int) string { return p.packed[i].GetLabels()[readLabel] }),
		peerUnstructured: p.peers(asUnstructured),
		peerTyped:        p.peers(asTyped),
		peerMetadata:     p.peers(asMetadata),
		peerName:         handler(func(i int) string { return p.maps[i].GetName() }),
		peerLabel:        handler(func(i int) string { return p.maps[i].GetLabels()[readLabel] }),

		ofDeployment + intoTypedHot:    d.into(d.hot, d.typed),
		ofDeployment + intoTypedShared: d.shared(),
		ofDeployment + intoTyped:       d.into(d.cold, d.typed),
		ofDeployment + intoTypedInTurn: d.into(d.full, d.typed),
		ofDeployment + peerTyped:       d.peers(asTyped),
		ofSecret + intoMetadata:        s.into(s.hot, newMetadata),
		ofSecret + peerMetadata:        s.peers(asMetadata),
		listTyped:                      list(b.ours),
		peerList:                       list(b.peer),
	}
}
