// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// cluster is one remote cluster. It is an actor without a goroutine: events go
// to its mailbox, and the caller that finds it idle handles them one at a time.
//
//	post(message) --> mailbox --> drain: handle(m), one caller at a time
//	                                |
//	   admit, adopt                 |  take in what an attempt found
//	   phase.Next(state, event)     |  pure: next state and actions
//	   publish                      |  new view for readers, without a lock
//	   act                          |  transport, informers, events, attempts
//	   timers.Set(tick, deadline)   |
//	                                v
//	   workers run attempts ---> post(Succeeded or Failed)
//	   the timer fires      ---> post(Tick)
//
// Handling never waits: work that uses the network goes to the workers, whose
// results come back as messages.
type cluster struct {
	cc        *ClusterCache
	key       client.ObjectKey
	name      string
	transport *transport.Transport
	mapper    *restmap.Mapper
	reader    *reader
	live      *liveclient.Factory
	wants     *watchset.Set
	tick      *timetable.Timer

	pinned  atomic.Bool // stays known without a watch
	leaving atomic.Bool // is to be given up with its last watch
	// discovered: made known by Options.Discover. unlisted: missing from the
	// resolver's last list.
	discovered, unlisted atomic.Bool
	view                 atomic.Pointer[view]
	done                 chan struct{} // closed with the cluster
	asking               chan struct{} // one slot: a call of the Resolver is running

	prover    prover
	busy      busyness
	rollbacks rollbacks
	shown     certificates
	recovery  recovery

	mu       sync.Mutex // protects mailbox, handling and closed; nothing else is locked under it
	mailbox  []message
	handling bool
	closed   bool

	// The fields below belong to the caller that handles the mailbox
	// (handling).
	state   phase.State
	attempt *attempt // the running attempt, or the last one
	access  Access
	path    string // the probe path that the server answered
	uid     string
	version string // of the API server
	history int
	renewed time.Time
	lost    time.Time // time of the last disconnect
}

// awayLong is the length of a disconnect after which the cluster's informers
// are audited soon: a backup may have been restored in the meantime.
const awayLong = time.Minute

// message is an event, with the result of an attempt if it has one.
type message struct {
	phase.Event
	found *finding
}

// view is the state of a cluster that readers see. It is immutable, and
// replaced as a whole.
type view struct {
	phase     phase.Phase
	since     time.Time
	connected bool
	up        chan struct{} // closed while connected
	epoch     informerpool.Epoch
	client    *http.Client // for the informers, bound to epoch
	uid       string
	version   string
	access    Access
	err       error
	reason    string
	connects  int
	resets    int
	missed    int // consecutive probes without an answer

	lastProbe, lastSuccess time.Time
}

func newCluster(cc *ClusterCache, key client.ObjectKey) *cluster {
	c := &cluster{
		cc:     cc,
		key:    key,
		name:   clusterName(key),
		done:   make(chan struct{}),
		asking: make(chan struct{}, 1),
	}
	c.view.Store(&view{up: make(chan struct{}), since: time.Now()})
	c.transport = transport.New(transport.Options{
		Cluster:   c.name,
		QPS:       cc.options.QPS,
		Burst:     cc.options.Burst,
		UserAgent: cc.options.UserAgent,
		Logger:    cc.log,
		Panicked: func(p *callback.PanicError) {
			_ = cc.calls.Panicked(p, "cluster", c.name)
		},
		Unauthorized: func(revision string) {
			c.post(message{Event: phase.Event{Kind: phase.Unauthorized, Revision: revision}})
		},
	})
	c.transport.Shut(ErrConnecting)
	// Discovery needs proof of the server's identity, as reads do: the kinds
	// that another cluster serves must not be taken for those of this one.
	guarded := &liveGuard{c: c, next: c.transport.Client().Transport}
	c.mapper = cc.kinds.NewMapper(guarded.RoundTrip, c.transport.URL(), restmap.Options{NegativeTTL: cc.options.RetryInterval, Timeout: cc.options.RequestTimeout})
	c.reader = &reader{cc: cc, key: key, mode: cc.options.ReadMode}
	c.wants = newWants(c)
	c.live = newLive(c, guarded)
	c.prover.init(c)
	c.tick = timetable.NewTimer(func() {
		c.post(message{Event: phase.Event{Kind: phase.Tick, Life: c.transport.LastLife()}})
	})

	return c
}

// post puts a message into the mailbox, and handles the mailbox unless another
// caller is doing so. It does not wait. It returns false if the cluster is
// closed.
func (c *cluster) post(m message) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()

		m.found.drop()
		return false
	}
	c.mailbox = append(c.mailbox, m)
	c.mu.Unlock()

	c.drain()

	return true
}

// drain handles the mailbox, unless another caller is doing so: that caller
// sees every message that was posted before it stops.
func (c *cluster) drain() {
	if !c.cc.live.Load() {
		return // Start drains
	}
	c.mu.Lock()
	if c.handling {
		c.mu.Unlock()
		return
	}
	c.handling = true
	for len(c.mailbox) > 0 && !c.closed {
		m := c.mailbox[0]
		c.mailbox = c.mailbox[1:]
		c.mu.Unlock()

		c.handle(m)
		c.mu.Lock()
	}

	rest := c.mailbox
	c.handling, c.mailbox = false, nil
	c.mu.Unlock()

	for _, m := range rest {
		m.found.drop()
	}
}

// adopt puts the result of a connect attempt to use.
func (c *cluster) adopt(m *message) {
	f := m.found
	if f == nil {
		return // a probe, or a refresh that found no change
	}
	if f.candidate != nil {
		if err := f.candidate.Use(); err != nil {
			m.Kind, m.Class, m.Err, m.Reason = phase.Failed, phase.Trouble, err, string(transport.Classify(err))
			return
		}
	}

	if resolver.Diff(c.access, f.access)&(resolver.ChangedEndpoint|resolver.ChangedProxy) != 0 {
		c.transport.CutStreams(f.access.Revision()) // they resume at the new address
	}
	c.access, c.path = f.access, f.path
	m.NewEpoch = c.uid != "" && c.uid != f.uid
	if m.NewEpoch {
		c.mapper.Reset() // it describes what the other cluster serves
	}
	c.adoptVersion(f.version, m.NewEpoch)
	c.uid = f.uid
	f.adopted.Store(true)
	c.prover.adopt(f)
}

// adoptVersion records the API server's version. Another version may serve
// other kinds, and may grant what the former one refused.
func (c *cluster) adoptVersion(version string, newEpoch bool) {
	changed := c.version != "" && version != "" && version != c.version && !newEpoch
	c.version = version
	if !changed {
		return
	}
	c.cc.pool.AuditSoon(c.key)
	c.cc.spawn(func() {
		ctx, cancel := context.WithTimeout(c.cc.ctx, c.cc.options.RequestTimeout)
		defer cancel()
		_ = c.mapper.Refresh(ctx) // if it fails, the next look-up of a kind tries again
		c.cc.pool.Wake(c.key)
		c.wants.MapNow()
	})
}

// publish shows the state to readers.
func (c *cluster) publish(before phase.State) {
	s, old := c.state, c.view.Load()
	v, fresh := *old, false
	v.phase, v.since, v.err, v.reason = s.Phase, s.Since, s.Err, s.Reason
	v.missed, v.lastProbe, v.lastSuccess = s.Missed, s.LastProbe, s.LastSuccess
	v.uid, v.access, v.version = c.uid, c.access, c.version
	if epoch := informerpool.Epoch(fmt.Sprintf("%s/%d", c.uid, c.history)); c.uid != "" && epoch != v.epoch {
		if v.epoch != "" {
			v.resets++
		}
		v.epoch = epoch
		fresh = true
	}

	v.connected = s.Connected
	switch {
	case s.Connected && !before.Connected:
		v.connects++
	case !s.Connected && before.Connected:
		v.up = make(chan struct{})
	}

	if fresh {
		v.client = newGuarded(c, &v)
	}
	c.view.Store(&v)
}

func (c *cluster) act(a phase.Action) {
	switch a {
	case phase.StartConnect:
		c.startAttempt(&c.cc.connect, (*attempt).connect)
	case phase.StartProbe:
		c.startAttempt(&c.cc.probe, (*attempt).probe)
	case phase.Cancel:
		c.attempt.cancel()
	case phase.Tell:
		c.attempt.tell(c.state.News)
	case phase.Up:
		if !c.lost.IsZero() && time.Since(c.lost) > awayLong {
			c.cc.pool.AuditSoon(c.key)
		}
		c.mapper.Invalidate()
		close(c.view.Load().up)
		c.cc.pool.Wake(c.key)
		c.wants.MapNow()
		c.wants.RemapNow()
		c.emit(Connected)
	case phase.Down:
		c.lost = time.Now()
		c.transport.Shut(c.notConnected())
		c.emit(Disconnected)
	case phase.Renew:
		c.renewed = time.Now()
		c.emit(Disconnected)
		// Streams of the old history must end. Those of the current access can
		// only be cut by shutting the transport.
		c.transport.Shut(errRenewed)
		c.mapper.Reset()
		c.transport.Open()
		c.cc.pool.Wake(c.key)
		c.wants.MapNow()
		c.wants.RemapNow()
		c.emit(Connected)
	case phase.Evict:
		c.uid, c.version = "", ""
		c.mapper.Reset() // another cluster may take its place
		c.cc.pool.Evict(c.key)
		c.emit(Removed)
	case phase.Silence:
		c.emit(Silent)
	}
}

var errRenewed = errors.New("another history is served")

// notConnected returns the error of requests while the cluster is not
// connected. It quotes the cause without wrapping it: wrapped, the error of an
// earlier request would look to the transport like that of the failed one.
func (c *cluster) notConnected() error {
	if err := c.state.Err; err != nil {
		return fmt.Errorf("%w: %s", ErrNotConnected, clustername.Omit(c.name, err))
	}
	if c.state.Phase == phase.Connecting {
		return ErrConnecting
	}
	return ErrNotConnected
}

// startAttempt submits work to the workers. Its result carries the generation
// that the attempt was started for.
func (c *cluster) startAttempt(w *workers, work func(*attempt) message) {
	a := &attempt{
		c:    c,
		gen:  c.state.Gen,
		work: work,
		told: make(chan struct{}, 1),
		start: start{
			connected: c.state.Connected,
			prove:     c.state.Prove,
			revision:  c.access.Revision(),
			path:      c.path,
			uid:       c.uid,
		},
	}
	a.news.Store(c.state.News)
	a.ctx, a.cancel = context.WithCancel(c.cc.ctx)
	c.attempt = a
	w.submit(a.run)
}

// announce logs a change of phase. It emits PhaseChanged for a change that is
// neither a connect nor a disconnect.
func (c *cluster) announce(before phase.State) {
	s := c.state
	keys := []any{"cluster", c.name, "phase", s.Phase.String(), "was", before.Phase.String()}
	if s.Reason != "" {
		keys = append(keys, "reason", s.Reason)
	}
	if s.Err != nil {
		keys = append(keys, "error", clustername.Omit(c.name, s.Err))
	}
	c.cc.log.Info("Cluster changed phase", keys...)
	if before.Connected == s.Connected {
		c.emit(PhaseChanged)
	}
}

func (c *cluster) emit(t ClusterEventType) {
	v := c.view.Load()
	c.cc.events.publish(ClusterEvent{
		Cluster: c.key,
		Type:    t,
		Phase:   Phase(v.phase.String()),
		Reason:  v.reason,
		Epoch:   string(v.epoch),
		Time:    time.Now(),
	})
}

// wanted reports whether the cluster is pinned or has a want.
func (c *cluster) wanted() bool { return c.pinned.Load() || c.wants.Any() }

// unpin ends the effect of Engage. The cluster ends with its last want, unless
// Options.Discover is set.
func (c *cluster) unpin() {
	c.pinned.Store(false)
	c.leaving.Store(!c.cc.options.Discover)
	c.letGo()
}

// leave gives up a cluster without a pin or want, as Disengage would.
func (c *cluster) leave() {
	if c.wanted() {
		return
	}
	c.leaving.Store(!c.cc.options.Discover)
	c.letGo()
}

// letGo ends a cluster that is not wanted, if it was given up or is gone.
func (c *cluster) letGo() {
	switch {
	case c.wanted():
	case c.view.Load().phase == phase.Gone:
		c.cc.spawn(func() { c.cc.forget(c) })
	case c.leaving.Load():
		c.post(message{Event: phase.Event{Kind: phase.Removed, Reason: ReasonReleased}})
	}
}

// close ends the cluster for good, and waits for its work to end. Attempts may
// still run on the workers, but their messages are dropped. It reports whether
// a change may have been lost: messages were waiting or being handled, or the
// cluster had left the phase Gone.
func (c *cluster) close() (news bool) {
	c.mu.Lock()
	if !c.closed {
		close(c.done)
	}
	c.closed = true
	rest := c.mailbox
	news = c.handling || len(rest) > 0 || c.view.Load().phase != phase.Gone
	c.mailbox = nil
	c.mu.Unlock()

	for _, m := range rest {
		m.found.drop()
	}
	c.cc.timers.Set(c.tick, time.Time{})
	c.cc.timers.Set(c.prover.tick, time.Time{})
	c.wants.Close(ErrClosed)
	c.transport.Close()

	return news
}
