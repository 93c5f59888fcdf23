// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

const (
	// port is the same in all clusters, which have addresses of their own. It
	// is outside of the range from which clients get theirs: a port that is
	// free during an outage must still be free afterwards.
	port = "6443"
	// streams is how many streams a connection may have, as by default in
	// kube-apiserver.
	streams = 100
	// firstVersion is where histories begin.
	firstVersion = 1000
)

// cluster is one API server.
type cluster struct {
	fleet     *Fleet
	number    int
	name      string
	address   string
	token     string
	uid       string
	generator objects.Generator
	identity  identity
	tls       *tls.Config

	mu     sync.Mutex // protects the fields below, and what the tables say
	rv     int64
	oldest int64    // the oldest version from which a watch can resume
	tables []*table // in the order of Fleet.kinds
	next   int      // table to change
	server *http.Server
	served chan struct{} // closed when server has ended
}

// freeBlock returns the second byte of loopback addresses that no other fleet
// uses.
func freeBlock() (int, error) {
	for i := range 100 {
		block := 64 + (os.Getpid()+i)%100
		l, err := net.Listen("tcp", addressOf(block, 0))
		if err == nil {
			return block, l.Close()
		}
	}
	return 0, errors.New("no free block of loopback addresses")
}

// perNet is how many addresses of a network of 256 are used.
const perNet = 250

func addressOf(block, i int) string {
	return net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", block, i/perNet, 1+i%perNet), port)
}

func newCluster(f *Fleet, block, i int) (*cluster, error) {
	c := &cluster{
		fleet:     f,
		number:    i,
		name:      clusterName(i),
		address:   addressOf(block, i),
		token:     "token-of-" + clusterName(i) + "-" + rand.Text(),
		generator: objects.Generator{Seed: f.options.Seed<<20 + uint64(i), Replicas: f.options.Replicas},
		rv:        firstVersion + int64(len(f.kinds)*f.options.Objects),
		oldest:    firstVersion,
	}
	c.uid = c.generator.ClusterUID()
	for i, k := range f.kinds {
		c.tables = append(c.tables, newTable(c, i, k))
	}
	host, _, err := net.SplitHostPort(c.address)
	if err != nil {
		return nil, err
	}
	c.identity = newIdentity(c.name, host)
	c.tls = &tls.Config{
		Certificates: []tls.Certificate{c.identity.certificate},
		NextProtos:   []string{"h2", "http/1.1"},
		MinVersion:   tls.VersionTLS12,
		VerifyConnection: func(s tls.ConnectionState) error {
			f.counts.opened.Add(1)
			if s.DidResume {
				f.counts.resumed.Add(1)
			}
			return nil
		},
	}

	return c, c.newSessionKeys()
}

// newSessionKeys makes TLS sessions end that exist.
func (c *cluster) newSessionKeys() error {
	var key [32]byte
	_, err := rand.Read(key[:])
	c.tls.SetSessionTicketKeys([][32]byte{key})
	return err
}

func (c *cluster) access() measure.Cluster {
	return measure.Cluster{
		Name:  c.name,
		Host:  "https://" + c.address,
		CA:    c.identity.authority,
		Token: c.token,
	}
}

// up starts to listen, unless the cluster does.
func (c *cluster) up() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", c.address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:   c,
		TLSConfig: c.tls,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: streams},
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnState: c.count,
	}
	served := make(chan struct{})
	c.server, c.served = server, served
	go func() {
		defer close(served)
		_ = server.ServeTLS(&listener{Listener: l, sent: &c.fleet.counts.sent}, "", "")
	}()

	return nil
}

// count counts open connections.
func (c *cluster) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.fleet.counts.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.fleet.counts.connections.Add(-1)
	}
}

// down ends all connections and refuses new ones.
func (c *cluster) down() error {
	c.mu.Lock()
	server, served := c.server, c.served
	c.server = nil
	c.mu.Unlock()

	if server == nil {
		return nil
	}
	err := server.Close()
	<-served

	return err
}

// change changes one object, of each kind in turn.
func (c *cluster) change() measure.Mark {
	c.mu.Lock()
	t := c.tables[c.next%len(c.tables)]
	c.next++
	i := t.change(c.next / len(c.tables))
	c.mu.Unlock()

	return c.mark(t, i)
}

// mark returns the state of an object.
func (c *cluster) mark(t *table, i int) measure.Mark {
	c.mu.Lock()
	rv := t.version(i)
	c.mu.Unlock()

	o := t.kind.New(c.generator, i)
	return measure.Mark{
		Cluster:         c.number,
		Kind:            KindOf(t.kind),
		Namespace:       o.GetNamespace(),
		Name:            o.GetName(),
		ResourceVersion: strconv.FormatInt(rv, 10),
	}
}

// last returns the state of the object that has changed last.
func (c *cluster) last(t *table) measure.Mark {
	c.mu.Lock()
	i := 0
	if n := len(t.log); n > 0 {
		i = t.log[n-1].object
	}
	c.mu.Unlock()

	return c.mark(t, i)
}

// forgotten is how much happens before a history is forgotten: compaction
// follows many changes, of other kinds too.
const forgotten = 1000

// forget removes the history.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.rv += forgotten
	c.oldest = c.rv
	for _, t := range c.tables {
		t.log = nil
	}
}
