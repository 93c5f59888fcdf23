// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

var (
	soakTime = flag.Duration("soak", 8*time.Second, "how long TestSoak has three control planes fail at random")
	soakSeed = flag.Uint64("soak.seed", 0, "which faults TestSoak chooses; 0: others each time")
)

// TestSoak makes three control planes fail at random while objects are written
// and read. In the end cache, events and quorum lists must agree.
func TestSoak(t *testing.T) {
	t.Parallel()
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-soak=%s -soak.seed=%d", *soakTime, seed)
	fmt.Printf("TestSoak: -soak=%s -soak.seed=%d\n", *soakTime, seed)
	configs, planes := startPlanes(t, seed)
	s, broad := watching(t, configs, nil), starting(t, configs, nil)
	for _, p := range planes {
		p.all = follow(t, broad, p.key, p.remote)
	}
	var wrong atomic.Pointer[string]
	ctx, cancel := context.WithTimeout(t.Context(), *soakTime)
	defer cancel()
	var running sync.WaitGroup
	for _, p := range planes {
		running.Go(func() { p.write(ctx) })
		running.Go(func() { p.writeAll(ctx) })
		running.Go(func() { p.read(ctx, s, &wrong) })
		running.Go(func() { p.audience(&wrong).read(ctx) })
		running.Go(func() { p.fail(ctx, t) })
	}
	running.Wait()
	if problem := wrong.Load(); problem != nil {
		require.FailNow(t, "a read was wrong", *problem)
	}
	for _, p := range planes {
		p.heal(t)
		s.ready(p.key)
		broad.ready(p.key)
		p.oracle.put(t, "last", "word")
	}
	for _, p := range planes {
		took := s.equals(p.key, p.oracle, found)
		p.remote.diverge(t)
		took += p.all.equals(found)
		line := fmt.Sprintf("%s: %d faults (%v), %d writes, %d reads, equal after %s", p.key.Name, p.faults, p.kinds,
			p.writes.Load(), p.reads.Load(), took)
		t.Log(line)
		fmt.Println("TestSoak:", line)
	}
}

// plane is one control plane of a soak test.
type plane struct {
	*testenv.Cluster

	key    client.ObjectKey
	oracle oracle
	remote remote
	all    *estate
	proxy  *testenv.Proxy
	random *rand.Rand // for faults
	values *rand.Rand // for writes
	others *rand.Rand // for writes to the estate
	looks  *rand.Rand // for reads of the estate
	saved  *testenv.Snapshot

	faults        int
	kinds         map[string]int
	writes, reads atomic.Int64
}

func startPlanes(t *testing.T, seed uint64) (map[client.ObjectKey]*rest.Config, []*plane) {
	t.Helper()
	configs := map[client.ObjectKey]*rest.Config{}
	var planes []*plane
	for i, c := range testenv.Start(t, 3, testenv.WithCRDs(partsAndSites()...)) {
		p := &plane{
			Cluster: c,
			key:     client.ObjectKey{Namespace: "fleet", Name: c.Name()},
			oracle:  newOracle(t, c.Config()),
			remote:  newRemote(t, c.Config(), c.Name()),
			proxy:   c.Proxy(t),
			random:  rand.New(rand.NewPCG(seed, uint64(i))),
			values:  rand.New(rand.NewPCG(seed, uint64(i)+100)),
			others:  rand.New(rand.NewPCG(seed, uint64(i)+200)),
			looks:   rand.New(rand.NewPCG(seed, uint64(i)+300)),
			kinds:   map[string]int{},
		}
		settle(t, p.oracle)
		p.remote.settle(t)
		var err error
		p.saved, err = c.Snapshot(t.Context())
		require.NoError(t, err)
		configs[p.key] = p.proxy.Config()
		planes = append(planes, p)
	}
	return configs, planes
}

// write creates, changes and deletes objects as fast as the server accepts
// them.
func (p *plane) write(ctx context.Context) {
	maps := p.oracle.CoreV1().ConfigMaps(namespace)
	for ctx.Err() == nil {
		name := fmt.Sprintf("o-%d", p.values.IntN(40))
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"v": fmt.Sprint(p.values.Int()), "from": p.key.Name},
		}
		var err error
		switch p.values.IntN(4) {
		case 0:
			err = maps.Delete(one, name, metav1.DeleteOptions{})
		case 1:
			_, err = maps.Create(one, cm, metav1.CreateOptions{})
		default:
			_, err = maps.Update(one, cm, metav1.UpdateOptions{})
		}
		cancel()
		if err == nil {
			p.writes.Add(1)
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// writeAll changes objects of all kinds.
func (p *plane) writeAll(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		if p.remote.write(one, p.others) {
			p.writes.Add(1)
		}
		cancel()
		pause(ctx, 10*time.Millisecond)
	}
}

func (p *plane) audience(wrong *atomic.Pointer[string]) *audience {
	return &audience{estate: p.all, random: p.looks, wrong: wrong, reads: &p.reads, seen: map[string]string{}}
}

// read checks that the cache's contents belong to the cluster from which they
// are read.
func (p *plane) read(ctx context.Context, s *subject, wrong *atomic.Pointer[string]) {
	for ctx.Err() == nil {
		list := &corev1.ConfigMapList{}
		var origin clustercache.Origin
		err := s.Cluster(p.key).Reader().List(ctx, list, client.InNamespace(namespace), clustercache.CacheOnly,
			clustercache.MaxStaleness(time.Hour), &origin)
		if err == nil {
			p.reads.Add(1)
		}
		for _, o := range list.Items {
			if from := o.Data["from"]; from != "" && from != p.key.Name {
				wrong.CompareAndSwap(nil, new(fmt.Sprintf("%s shows %s of %s", p.key, o.Name, from)))
			}
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fault is one kind of failure, from which heal recovers.
type fault struct {
	name string
	do   func(ctx context.Context, p *plane) error
}

var faults = []fault{
	{"kill the API server", func(_ context.Context, p *plane) error { return p.Kill() }},
	{"pause the API server", func(_ context.Context, p *plane) error { return p.Pause() }},
	{"kill etcd", func(_ context.Context, p *plane) error { return p.KillEtcd() }},
	{"pause etcd", func(_ context.Context, p *plane) error { return p.PauseEtcd() }},
	{"black hole", func(_ context.Context, p *plane) error { p.proxy.Blackhole(faultproxy.Both); return nil }},
	{"black hole to the client",
		func(_ context.Context, p *plane) error { p.proxy.Blackhole(faultproxy.ToClient); return nil }},
	{"refuse connections", func(_ context.Context, p *plane) error { p.proxy.Refuse(); return nil }},
	{"reset connections", func(_ context.Context, p *plane) error { p.proxy.ResetAll(); return nil }},
	{"cut after random bytes",
		func(_ context.Context, p *plane) error { p.proxy.CutAfter(p.random.Int64N(4096)); return nil }},
	{"delay", func(_ context.Context, p *plane) error {
		p.proxy.Delay(time.Duration(p.random.IntN(300)) * time.Millisecond)
		return nil
	}},
	{"throttle", func(_ context.Context, p *plane) error { p.proxy.Throttle(1000 + p.random.IntN(10000)); return nil }},
	{"flip streamed lists", func(ctx context.Context, p *plane) error {
		return p.RestartAs(ctx, testenv.Args(fmt.Sprintf("--feature-gates=WatchList=%t", p.random.IntN(2) == 0)))
	}},
	{"take a snapshot", func(ctx context.Context, p *plane) (err error) { p.saved, err = p.Snapshot(ctx); return err }},
	{"restore an old snapshot", func(ctx context.Context, p *plane) error { return p.Rollback(ctx, p.saved) }},
	{"restore a backup", func(ctx context.Context, p *plane) error {
		b, err := p.Backup(ctx)
		if err != nil {
			return err
		}
		pause(ctx, time.Second)
		return p.Restore(ctx, b)
	}},
}

// fail injects one fault after another into the control plane.
func (p *plane) fail(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		f := faults[p.random.IntN(len(faults))]
		lasts := time.Duration(500+p.random.IntN(4000)) * time.Millisecond
		if err := f.do(context.WithoutCancel(ctx), p); err != nil {
			t.Errorf("%s: %s: %v", p.key, f.name, err)
			return
		}
		p.faults++
		p.kinds[f.name]++
		pause(ctx, lasts)
		p.heal(t)
		pause(ctx, time.Duration(p.random.IntN(4000))*time.Millisecond)
	}
}

// heal ends all faults.
func (p *plane) heal(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	// A process that is not running cannot be resumed; it is started below.
	_ = p.ResumeEtcd()
	_ = p.Resume()
	if err := errors.Join(p.StartEtcd(ctx), p.StartAPIServer(ctx), p.proxy.Heal()); err != nil {
		t.Errorf("%s: heal: %v", p.key, err)
	}
}
