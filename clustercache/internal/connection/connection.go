// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// Connection is the connection to one cluster. It is an actor without a
// goroutine: events go to its mailbox, and the caller that finds it idle
// handles them one at a time.
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
type Connection struct {
	cfg       *Config
	hooks     Hooks
	name      string
	transport *transport.Transport
	mapper    *restmap.Mapper
	tick      *timetable.Timer
	view      atomic.Pointer[View]
	lookup    lookup
	prover    prover
	signs     signs
	mailbox   mailbox

	handled // belongs to the caller that handles the mailbox
}

// handled is the state that messages change.
type handled struct {
	state   phase.State
	attempt *attempt // the running attempt, or the last one
	server  Server
	path    string            // the probe path that the server answered
	labels  map[string]string // nil while they are unknown
	history int
	renewed time.Time
	lost    time.Time // time of the last disconnect
}

// New returns the connection of a cluster. Nothing happens before the first
// call of Ask.
func New(cfg *Config, key client.ObjectKey, hooks Hooks) *Connection {
	c := &Connection{
		cfg:     cfg,
		hooks:   hooks,
		name:    clustername.Of(key),
		mailbox: mailbox{done: make(chan struct{})},
	}
	c.view.Store(&View{Up: make(chan struct{}), Since: time.Now()})
	c.transport = transport.New(transport.Options{
		Cluster:   c.name,
		QPS:       cfg.QPS,
		Burst:     cfg.Burst,
		UserAgent: cfg.UserAgent,
		NetHTTP:   cfg.NetHTTP,
		Logger:    cfg.Log,
		Panicked: func(p *callback.PanicError) {
			_ = cfg.Calls.Panicked(p, "cluster", c.name)
		},
		Unauthorized: func(revision string) {
			c.post(message{Event: phase.Event{Kind: phase.Unauthorized, Revision: revision}})
		},
	})
	c.transport.Shut(ErrConnecting)
	c.signs.opinions = every(sickPause)
	c.lookup = lookup{
		cfg:   cfg,
		hooks: hooks,
		key:   key,
		name:  c.name,
		slot:  make(chan struct{}, 1),
	}
	c.prover = prover{
		cfg:       cfg,
		hooks:     hooks,
		transport: c.transport,
		view:      &c.view,
		signs:     &c.signs,
		report:    func(e phase.Event) { c.post(message{Event: e}) },

		opinions:   every(identity.Retry),
		suspicions: every(sickPause),
	}
	c.prover.queries = queries{
		cluster:  c.name,
		timeout:  cfg.ProbeTimeout,
		signs:    &c.signs,
		replaced: hooks.Replaced,
	}
	c.prover.tick = timetable.NewTimer(c.prover.renew)
	// Discovery needs proof of the server's identity, as reads do: the kinds
	// that another cluster serves must not be taken for those of this one.
	discovery := c.Guard(c.transport.Client().Transport)
	c.mapper = cfg.Kinds.NewMapper(discovery.RoundTrip, c.transport.URL(), restmap.Options{
		NegativeTTL: cfg.RetryInterval,
		Timeout:     cfg.RequestTimeout,
	})
	c.tick = timetable.NewTimer(func() {
		c.post(message{Event: phase.Event{Kind: phase.Tick, Life: c.transport.LastLife()}})
	})

	return c
}

// Transport returns the transport of the connection. Requests have to go
// through Guard, or through the client of the [View].
func (c *Connection) Transport() *transport.Transport { return c.transport }

// Mapper returns what maps kinds to the resources of the cluster.
func (c *Connection) Mapper() *restmap.Mapper { return c.mapper }

// Done returns a channel that is closed with the connection.
func (c *Connection) Done() <-chan struct{} { return c.mailbox.done }

// View returns the current state.
func (c *Connection) View() *View { return c.view.Load() }

// Busy returns the 429 with which the server last answered, or nil if it is not
// busy.
func (c *Connection) Busy() error { return c.signs.busy.cause() }

// Witnessed returns a context for requests, and a function to call after their
// answers, which queries the identity over the connection of the last of them.
// It returns an error if another cluster answers now, or another history began
// since: then it is not known which the answers belong to. Without an answer to
// the query, the proof that admitted the requests stands.
func (c *Connection) Witnessed(ctx context.Context) (_ context.Context, same func() error) {
	v := c.view.Load()
	var over net.Conn
	ctx = recorded(ctx, &over)
	return ctx, func() error { return c.prover.after(ctx, v, over) }
}

// Guard returns the round tripper of live reads and writes. next is one of the
// connection's transport.
func (c *Connection) Guard(next http.RoundTripper) http.RoundTripper {
	return &liveGuard{p: &c.prover, next: next}
}

// OtherCluster returns an error if another cluster has answered, and its epoch
// has not begun yet: caches may hold objects of both.
func (c *Connection) OtherCluster() error {
	if c.prover.otherClusterAnswered() {
		return errOtherCluster
	}
	return nil
}

// Ask reports that the cluster is to be used. It returns false if the
// connection is closed.
func (c *Connection) Ask() bool { return c.notify(phase.Asked) }

// Changed reports that the access to the cluster may have changed. It returns
// false if the connection is closed.
func (c *Connection) Changed() bool { return c.notify(phase.Changed) }

// Release ends the connection unless the cluster is wanted by then.
func (c *Connection) Release() {
	c.post(message{Event: phase.Event{Kind: phase.Removed, Reason: ReasonReleased}})
}

// RolledBack reports that the history of an API group went backwards. The
// informers of that group handle it alone, unless a resource of the core group
// went back, or resources of more than one group within a short time: an
// extension server that keeps its objects in memory begins a new history each
// time it starts.
func (c *Connection) RolledBack(group string) {
	if c.signs.rollbacks.spread(group, time.Now()) {
		c.notify(phase.RolledBack)
	}
}

func (c *Connection) notify(kind phase.Kind) bool {
	return c.post(message{Event: phase.Event{Kind: kind}})
}

// post puts a message into the mailbox, and handles the mailbox unless another
// caller is doing so. It does not wait. It returns false if the cluster is
// closed.
func (c *Connection) post(m message) bool {
	if !c.mailbox.put(m) {
		m.found.drop()
		return false
	}
	c.Drain()
	return true
}

// Drain handles the mailbox, unless another caller is doing so.
func (c *Connection) Drain() {
	if c.cfg.Started() { // otherwise Start drains
		c.mailbox.drain(c.handle)
	}
}

// Close ends the connection for good, and waits for its work to end. Attempts
// may still run on the workers, but their messages are dropped. It reports
// whether a change may have been lost: messages were waiting or being handled,
// or the cluster had left the phase Gone.
func (c *Connection) Close() (pending bool) {
	pending = c.mailbox.close() || c.view.Load().Phase != phase.Gone
	c.cfg.Timers.Set(c.tick, time.Time{})
	c.cfg.Timers.Set(c.prover.tick, time.Time{})
	c.transport.Close()

	return pending
}
