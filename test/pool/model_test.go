// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	modelSeeds = flag.Int("model.seeds", 12, "how many seeds TestModel runs, and a fifth of them with -short")
	modelSteps = flag.Int("model.steps", 600, "how many steps each seed takes")
	modelSeed  = flag.Uint64("model.seed", 1, "the first seed of TestModel")
)

// TestModel does random things to a pool and its server. At each quiet point it
// compares every cache with the server's state, and the events of every handler
// with both. The recorder fails on a history that is out of order or repeats
// itself.
func TestModel(t *testing.T) {
	for i := range repeat.Times(*modelSeeds) {
		seed := *modelSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.PagedLists = seed%3 == 0
				o.PageSize = 3
				o.ListConcurrency = 2
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				m := &model{t: t, rnd: rnd, server: s, pool: p}
				for step := range *modelSteps {
					m.step()
					if step%25 == 24 {
						m.settle()
					}
				}
			})
		})
	}
}

// model is the state of the test: leases with the selections they must show,
// each with a handler.
type model struct {
	t      *testing.T
	rnd    *rand.Rand
	server *pooltest.Server
	pool   *informerpool.Pool
	leases []*modelLease
	epochs int
}

type modelLease struct {
	lease    *informerpool.Lease
	match    func(pooltest.Object) bool
	tells    func(pooltest.Object) bool // of these, those that the subscription selects
	recorder *pooltest.Recorder
	sub      *informerpool.Subscription
}

func (m *model) step() {
	switch n := m.rnd.IntN(100); {
	case n < 45:
		m.server.Put(m.namespace(), m.name(), m.rnd.Int(), "app="+fmt.Sprint(m.rnd.IntN(3)))
	case n < 60:
		m.server.Delete(m.namespace(), m.name())
	case n < 70:
		m.acquire()
	case n < 78 && len(m.leases) > 0:
		m.release(m.rnd.IntN(len(m.leases)))
	case n < 82:
		m.server.Cut([]error{io.EOF, io.ErrUnexpectedEOF, pooltest.ErrUnreachable}[m.rnd.IntN(3)])
	case n < 85:
		m.server.Cut(io.ErrUnexpectedEOF)
		m.server.Compact()
	case n < 88:
		m.fault()
	case n < 89:
		m.epochs++
		m.server.Become(informerpool.Epoch(fmt.Sprint("epoch", m.epochs)), uint64(m.rnd.IntN(5000)))
	case n < 90:
		m.pool.Wake(pooltest.Everything.Cluster)
	case n < 91:
		m.pool.Evict(pooltest.Everything.Cluster)
	case n < 93:
		m.server.SendBookmark()
	case n < 95 && len(m.leases) > 0:
		m.ask(m.leases[m.rnd.IntN(len(m.leases))])
	default:
		time.Sleep(time.Duration(m.rnd.Int64N(int64(5 * time.Second))))
	}
	if m.rnd.IntN(3) == 0 {
		synctest.Wait()
	}
}

func (m *model) namespace() string { return fmt.Sprint("ns", m.rnd.IntN(3)) }
func (m *model) name() string      { return fmt.Sprint("o", m.rnd.IntN(12)) }

// fault makes the server fail in one of its ways until the next quiet point, or
// until the next break.
func (m *model) fault() {
	errs := []error{
		pooltest.ErrUnreachable, io.ErrUnexpectedEOF, apierrors.NewTooManyRequests("later", 2),
		apierrors.NewServiceUnavailable("starting"),
		apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no")),
		apierrors.NewUnauthorized("who"),
		apierrors.NewInternalError(errors.New("conversion webhook")),
	}
	err := errs[m.rnd.IntN(len(errs))]
	cutAfter := m.rnd.IntN(3000)
	m.server.Set(func(s *pooltest.Server) {
		s.Fail = func(string) error { return err }
		if cutAfter%2 == 0 {
			s.Fail, s.CutAfter = nil, cutAfter
		}
	})
	m.server.Cut(io.ErrUnexpectedEOF)
}

func (m *model) acquire() {
	k := pooltest.Everything
	match := func(pooltest.Object) bool { return true }
	switch m.rnd.IntN(3) {
	case 1:
		k.Namespace = m.namespace()
		match = pooltest.Matcher(k)
	case 2:
		k.LabelSelector = "app=" + fmt.Sprint(m.rnd.IntN(3))
		match = pooltest.Matcher(k)
	}
	r := pooltest.NewRecorder()
	r.Epochs = true // the order inside an epoch is checked by the histories' chain of old and new
	if m.rnd.IntN(4) == 0 {
		delay := time.Duration(m.rnd.Int64N(int64(time.Second)))
		r.Before = func(informerpool.Event) { time.Sleep(delay) }
	}
	l := &modelLease{lease: pooltest.Acquire(m.t, m.pool, k), match: match, tells: match, recorder: r,
		sub: m.pool.Subscribe(r)}
	var narrower []informerpool.Key
	for range m.rnd.IntN(3) {
		narrower = append(narrower, informerpool.Key{Resource: pooltest.Widgets, Namespace: m.namespace()})
		if m.rnd.IntN(2) == 0 {
			narrower[len(narrower)-1].LabelSelector = "app=" + fmt.Sprint(m.rnd.IntN(3))
		}
	}
	if len(narrower) > 0 {
		l.tells = func(o pooltest.Object) bool {
			return match(o) && slices.ContainsFunc(narrower,
				func(k informerpool.Key) bool { return pooltest.Matcher(k)(o) })
		}
	}
	require.NoError(m.t, l.sub.Add(l.lease, narrower...))
	m.leases = append(m.leases, l)
}

// ask makes a subscription deliver objects once more, or pauses it until the
// next quiet point.
func (m *model) ask(l *modelLease) {
	switch m.rnd.IntN(3) {
	case 0:
		l.sub.Resync(l.lease)
	case 1:
		l.sub.Trigger(l.lease, m.namespace(), m.name())
	default:
		l.sub.Pause()
	}
}

func (m *model) release(i int) {
	l := m.leases[i]
	m.leases = slices.Delete(m.leases, i, i+1)
	require.NoError(m.t, l.lease.Close(context.Background()))
	l.recorder.RequireSound(m.t)
	before := len(l.recorder.Take())
	_ = before
	synctest.Wait()
	require.Empty(m.t, l.recorder.Take(), "told after close")
}

// settle heals the server, waits until all is quiet, and compares.
func (m *model) settle() {
	m.server.Set(func(s *pooltest.Server) { s.Fail, s.CutAfter = nil, 0 })
	for _, l := range m.leases {
		l.sub.Continue()
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	for _, l := range m.leases {
		want := m.server.State(l.match)
		require.Equal(m.t, want, pooltest.Contents(m.t, l.lease), "cache of %s", l.lease.Key())
		require.Equal(m.t, m.server.State(l.tells), l.recorder.State(), "told to the handler of %s", l.lease.Key())
		require.True(m.t, l.sub.HasSynced(l.lease))
		l.recorder.RequireSound(m.t)
		require.Equal(m.t, informerpool.StateSynced, l.lease.Status().State)
	}
}
