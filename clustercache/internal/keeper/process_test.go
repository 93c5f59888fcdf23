// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// memory is a persist.Store in memory.
type memory struct {
	mu      sync.Mutex
	buckets map[string]map[string][]byte
	fail    error
	applied int    // bytes
	onApply func() // called after each
}

func newMemory() *memory { return &memory{buckets: map[string]map[string][]byte{}} }

func (m *memory) Buckets() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.buckets)), m.fail
}

func (m *memory) Read(bucket string, f func(key, value []byte) error) error {
	m.mu.Lock()
	records, fail := maps.Clone(m.buckets[bucket]), m.fail
	m.mu.Unlock()
	if fail != nil {
		return fail
	}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if err := f([]byte(key), records[key]); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Apply(changes []persist.Change) error {
	if err := m.apply(changes); err != nil {
		return err
	}
	if m.onApply != nil {
		m.onApply()
	}
	return nil
}

func (m *memory) apply(changes []persist.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, c := range changes {
		b := m.buckets[c.Bucket]
		switch {
		case c.Key == nil:
			delete(m.buckets, c.Bucket)
		case c.Value == nil:
			delete(b, string(c.Key))
		default:
			if b == nil {
				b = map[string][]byte{}
				m.buckets[c.Bucket] = b
			}
			b[string(c.Key)] = bytes.Clone(c.Value)
			m.applied += len(c.Value)
		}
	}
	return nil
}

// copy returns a store with the same records, as a killed process leaves it.
func (m *memory) copy() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newMemory()
	for name, records := range m.buckets {
		c.buckets[name] = map[string][]byte{}
		for k, v := range records {
			c.buckets[name][k] = bytes.Clone(v)
		}
	}
	return c
}

// count returns the number of records of states, or without any that of
// dictionaries, which must not be left.
func (m *memory) count() (records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, b := range m.buckets {
		if name != "dictionaries" {
			records += len(b)
		}
	}
	if records == 0 {
		return len(m.buckets["dictionaries"])
	}
	return records
}

// process is one process of an operator.
type process struct {
	t      *testing.T
	ahead  atomic.Int64 // by how much the machine's clock was set, a Duration
	pool   *informerpool.Pool
	keeper *keeper.Keeper
	cancel context.CancelFunc
}

// start starts a process.
func start(t *testing.T, s informerpool.Source, store persist.Store,
	change func(*informerpool.Options, *persist.Options)) *process {
	t.Helper()
	return startAt(t, s, store, change, 0)
}

// startAt starts a process on a machine whose clock is ahead.
func startAt(t *testing.T, s informerpool.Source, store persist.Store,
	change func(*informerpool.Options, *persist.Options), ahead time.Duration) *process {
	t.Helper()
	o := informerpool.Options{
		Source: s,
		Logger: logr.Discard(),
	}
	options := persist.Options{Store: store}
	if change != nil {
		change(&o, &options)
	}
	p := &process{t: t}
	p.ahead.Store(int64(ahead))
	k, err := keeper.New(keeper.Config{
		Wall:      func(now time.Time) time.Time { return now.Round(0).Add(time.Duration(p.ahead.Load())) },
		Options:   options,
		Informers: &o,
		Identity:  func(e informerpool.Epoch) string { return identity(e) },
		Logger:    o.Logger,
	})
	require.NoError(t, err)
	o.Snapshots = k
	pool, err := informerpool.New(o)
	require.NoError(t, err)
	k.Open()
	ctx, cancel := context.WithCancel(context.Background())
	p.pool, p.keeper, p.cancel = pool, k, cancel
	go k.Run(ctx, pool)

	return p
}

// identity is what an epoch of a model server proves: "a" in "a/2".
func identity(e informerpool.Epoch) string {
	id, _, _ := bytes.Cut([]byte(e), []byte("/"))
	return string(id)
}

// stop ends a process in the regular way.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.keeper.Close(context.Background(), p.cancel))
	require.NoError(p.t, p.pool.Close(context.Background()))
}

// killed ends a process, and returns what is on its disk.
func (p *process) killed(m *memory) *memory {
	p.t.Helper()
	left := m.copy()
	m.mu.Lock()
	m.fail = errors.New("killed")
	m.mu.Unlock()
	p.stop()

	return left
}

// synced acquires everything, and waits until it is synced and at rest.
func (p *process) synced() *informerpool.Lease {
	p.t.Helper()
	l := pooltest.AcquireSynced(p.t, p.pool, pooltest.Everything)
	synctest.Wait()
	return l
}

// dropped returns how many states were dropped, by reason.
func (p *process) dropped() map[string]int {
	out := map[string]int{}
	for _, c := range p.keeper.Collectors() {
		for m := range collect(c) {
			var d dto.Metric
			if m.Write(&d) == nil && len(d.GetLabel()) == 1 {
				out[d.GetLabel()[0].GetValue()] += int(d.GetCounter().GetValue())
			}
		}
	}
	return out
}

// requests returns the numbers of a server's requests, and resets them.
func requests(s *pooltest.Server) (n map[string]int) {
	s.Set(func(s *pooltest.Server) {
		n = maps.Clone(s.Requests)
		clear(s.Requests)
	})
	return n
}

const round = persist.DefaultInterval + time.Second
