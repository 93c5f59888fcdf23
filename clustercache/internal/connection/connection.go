// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
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
	key       client.ObjectKey
	name      string
	transport *transport.Transport
	mapper    *restmap.Mapper
	tick      *timetable.Timer
	view      atomic.Pointer[View]
	done      chan struct{} // closed with the connection
	asking    chan struct{} // one slot: a call of the Resolver is running
	prover    prover
	signs     signs

	mu struct {
		sync.Mutex // nothing else is locked under it

		mailbox  []message
		handling bool
		closed   bool
	}

	handled // belongs to the caller that handles the mailbox (mu.handling)
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

// signs are what answers reveal about a server besides its identity.
type signs struct {
	busy         busyness
	certificates certificates
	recovery     recovery
	rollbacks    rollbacks
	unhealthy    atomic.Bool // the last health query was answered so
	opinions     rarely      // queries over new connections because of that
}

// New returns the connection of a cluster. Nothing happens before the first
// call of Ask.
func New(cfg *Config, key client.ObjectKey, hooks Hooks) *Connection {
	c := &Connection{
		cfg:    cfg,
		hooks:  hooks,
		key:    key,
		name:   clustername.Of(key),
		done:   make(chan struct{}),
		asking: make(chan struct{}, 1),
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
	// Discovery needs proof of the server's identity, as reads do: the kinds
	// that another cluster serves must not be taken for those of this one.
	discovery := c.Guard(c.transport.Client().Transport)
	c.mapper = cfg.Kinds.NewMapper(discovery.RoundTrip, c.transport.URL(), restmap.Options{
		NegativeTTL: cfg.RetryInterval,
		Timeout:     cfg.RequestTimeout,
	})
	c.prover.init(c)
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
func (c *Connection) Done() <-chan struct{} { return c.done }

// Busy returns the 429 with which the server last answered, or nil if it is not
// busy.
func (c *Connection) Busy() error { return c.signs.busy.cause() }

// adopt puts the result of a connect attempt to use.
func (c *Connection) adopt(m *message) {
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

	f.moved = resolver.Diff(c.server.Access, f.access)&(resolver.ChangedEndpoint|resolver.ChangedProxy) != 0
	if f.moved {
		c.transport.CutStreams(f.access.Revision()) // they resume at the new address
	}
	if c.server.Access.Revision() != f.access.Revision() {
		c.server.AccessSince = time.Now()
	}
	c.server.Access, c.path = f.access, f.path
	m.NewEpoch = c.server.UID != "" && c.server.UID != f.uid
	if m.NewEpoch {
		c.mapper.Reset() // it describes what the other cluster serves
	}
	c.adoptVersion(f.version, m.NewEpoch)
	c.server.UID = f.uid
	c.prover.adopt(f, m.NewEpoch)
}

// adoptVersion records the API server's version. Another version may serve
// other kinds, and may grant what the former one refused.
func (c *Connection) adoptVersion(version string, newEpoch bool) {
	changed := c.server.Version != "" && version != "" && version != c.server.Version && !newEpoch
	c.server.Version = version
	if !changed {
		return
	}
	c.hooks.Replaced()
	c.cfg.Spawn(func() {
		ctx, cancel := context.WithTimeout(c.cfg.Context, c.cfg.RequestTimeout)
		defer cancel()
		_ = c.mapper.Refresh(ctx) // if it fails, the next look-up of a kind tries again
		c.hooks.Resumed()
	})
}
