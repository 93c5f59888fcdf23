// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/informerpool"
)

// readLabel is the label that handlers read.
const readLabel = "app.kubernetes.io/name"

// read measures how long it takes to read a cached pod. All caches hold the
// pods of one namespace, in one process.
func read(ctx context.Context, t task) (figures, error) {
	testing.Init()
	if err := flag.Set("test.benchtime", t.RoundTime); err != nil {
		return nil, err
	}
	b, err := newBookshelf(ctx, t.Server.config())
	if err != nil {
		return nil, err
	}
	readings := b.readings()
	for range 2 { // an object that is read twice is hot
		for name, do := range readings {
			for i := range b.keys {
				if err := do(i); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}

	taken := map[string][]float64{}
	for round := range t.Rounds {
		for _, c := range comparisons {
			ours, peer := c.measure(readings, len(b.keys), round%2 == 1)
			taken[c.ours], taken[c.peer] = append(taken[c.ours], ours), append(taken[c.peer], peer)
			taken[c.name()] = append(taken[c.name()], ours/peer)
		}
	}

	f := figures{}
	for name, values := range taken {
		f[name] = median(values)
	}

	return f, nil
}

// measure measures both sides in turn, so that anything that slows down the
// machine for a while affects both alike.
func (c comparison) measure(readings map[string]func(int) error, n int, peerFirst bool) (ours, peer float64) {
	if peerFirst {
		peer = nanoseconds(readings[c.peer], n)
		return nanoseconds(readings[c.ours], n), peer
	}
	ours = nanoseconds(readings[c.ours], n)
	return ours, nanoseconds(readings[c.peer], n)
}

// nanoseconds returns how long do takes on average, over n objects in turn.
func nanoseconds(do func(int) error, n int) float64 {
	result := testing.Benchmark(func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := do(i % n); err != nil {
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
)

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
	{intoTypedHot, peerTyped, atMost(1.1)},
	{intoTypedShared, peerTyped, atMost(0.15)},
	{intoTyped, peerTyped, atMost(2.5)},
	{intoTypedInTurn, peerTyped, nil},
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
}

// decodedPod is what a decoded pod takes, in bytes.
const decodedPod = 16 << 10

// bookshelf holds the same pods in every cache.
type bookshelf struct {
	hot, cold *fleet // with a cache of decoded objects, and without
	full      *fleet // with one that holds a quarter of the pods
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
	ns := objects.NamespaceOf(0)
	open := func(o informerpool.Options) (*fleet, error) {
		f, err := newFleet(c, config.Host, o)
		if err != nil {
			return nil, err
		}
		return f, f.watch(ctx, pods, ns)
	}
	for at, o := range map[**fleet]informerpool.Options{
		&b.hot:  {},
		&b.cold: {DecodedBytes: -1},
		&b.bare: {DropManagedFields: true},
	} {
		if *at, err = open(o); err != nil {
			return nil, err
		}
	}

	r := &runtimeCaches{config: config, client: c, form: asUnstructured}
	if err := r.watch(ctx, pods, ns); err != nil {
		return nil, err
	}
	b.peer = r.cache
	for _, form := range []form{asTyped, asMetadata} {
		if _, err := b.peer.GetInformer(ctx, form(pods)); err != nil {
			return nil, err
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(pods.kind)
	if err := b.peer.List(ctx, list); err != nil {
		return nil, err
	}

	for i := range list.Items {
		u := &list.Items[i]
		o, err := b.hot.leases[0].Get(u.GetNamespace(), u.GetName())
		if err != nil {
			return nil, err
		}
		b.keys, b.packed, b.maps = append(b.keys, client.ObjectKeyFromObject(u)), append(b.packed, o), append(b.maps, u)
	}

	if len(b.keys) == 0 {
		return nil, fmt.Errorf("namespace %s has no pods", ns)
	}
	b.full, err = open(informerpool.Options{DecodedBytes: int64(len(b.keys)) * decodedPod / 4})
	return b, err
}

// readings returns the ways to read object i, by name.
func (b *bookshelf) readings() map[string]func(i int) error {
	ctx := context.Background()
	from := func(f *fleet, dst func() runtime.Object) func(int) error {
		return func(i int) error { return f.leases[0].GetInto(b.keys[i].Namespace, b.keys[i].Name, dst()) }
	}
	peer := func(f form) func(int) error {
		return func(i int) error { return b.peer.Get(ctx, b.keys[i], f(pods)) }
	}
	read := 0 // uses the results, so that no read is optimized away
	note := func(s string) error { read += len(s); return nil }

	return map[string]func(int) error{
		intoUnstructured: from(b.hot, func() runtime.Object { return &unstructured.Unstructured{} }),
		intoTypedHot:     from(b.hot, func() runtime.Object { return &corev1.Pod{} }),
		intoTyped:        from(b.cold, func() runtime.Object { return &corev1.Pod{} }),
		intoTypedInTurn:  from(b.full, func() runtime.Object { return &corev1.Pod{} }),
		intoTypedShared: func(i int) error {
			o, err := b.hot.leases[0].Get(b.keys[i].Namespace, b.keys[i].Name)
			if err != nil {
				return err
			}
			return b.hot.pool.DecodeShared(o, &corev1.Pod{})
		},
		intoMetadata:     from(b.hot, func() runtime.Object { return &metav1.PartialObjectMetadata{} }),
		bareUnstructured: from(b.bare, func() runtime.Object { return &unstructured.Unstructured{} }),
		bareMetadata:     from(b.bare, func() runtime.Object { return &metav1.PartialObjectMetadata{} }),
		getOnly: func(i int) error {
			_, err := b.hot.leases[0].Get(b.keys[i].Namespace, b.keys[i].Name)
			return err
		},
		nameInHandler:    func(i int) error { return note(b.packed[i].GetName()) },
		labelInHandler:   func(i int) error { return note(b.packed[i].GetLabels()[readLabel]) },
		peerUnstructured: peer(asUnstructured),
		peerTyped:        peer(asTyped),
		peerMetadata:     peer(asMetadata),
		peerName:         func(i int) error { return note(b.maps[i].GetName()) },
		peerLabel:        func(i int) error { return note(b.maps[i].GetLabels()[readLabel]) },
	}
}
