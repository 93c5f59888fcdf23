// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// gate is the way of all replicas to the hub: a proxy that forwards requests,
// and gives them the administrator's credentials. It can refuse and delay
// writes. A request that the hub does not answer ends with its connection.
type gate struct {
	server  *http.Server
	address string
	serving sync.WaitGroup

	mu      sync.Mutex
	trouble trouble
	met     int // requests that the trouble has met
}

// trouble is what the gate does to writes. The zero value is none.
type trouble struct {
	refuse int           // the status of the answer to renewals, which the hub never sees
	delay  time.Duration // how much later other writes reach the hub
}

// newGate opens a gate to the hub that config describes.
func newGate(config *rest.Config) (*gate, error) {
	hub, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{address: listener.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(hub) },
		Transport:     transport,
		FlushInterval: -1, // events are passed on at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	g.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if g.pass(w, r) {
				proxy.ServeHTTP(w, r)
			}
		}),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	g.serving.Go(func() { _ = g.server.Serve(listener) }) // until close
	return g, nil
}

// config returns a config for the hub through the gate.
func (g *gate) config() *rest.Config { return &rest.Config{Host: "http://" + g.address} }

// close ends all connections.
func (g *gate) close() error {
	err := g.server.Close()
	g.serving.Wait()
	return err
}

// set begins a trouble, or ends it, and returns how many requests the last one
// has met.
func (g *gate) set(t trouble) (met int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	met = g.met
	g.trouble, g.met = t, 0
	return met
}

// meet returns the trouble that a request meets.
func (g *gate) meet(r *http.Request) (trouble, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.trouble
	meets := t.delay > 0 && r.Method != http.MethodGet || t.refuse != 0 && r.Method == http.MethodPatch
	if meets {
		g.met++
	}
	return t, meets
}

// pass reports whether a request is to be forwarded now. If not, it has been
// answered.
func (g *gate) pass(w http.ResponseWriter, r *http.Request) bool {
	t, meets := g.meet(r)
	switch {
	case !meets:
		return true
	case t.refuse != 0:
		refuse(w, t.refuse)
		return false
	}
	select {
	case <-time.After(t.delay):
		return true
	case <-r.Context().Done(): // a server gives up with its client
		panic(http.ErrAbortHandler)
	}
}

// refuse answers as an API server does for which a Lease does not exist, or has
// changed.
func refuse(w http.ResponseWriter, code int) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	status := apierrors.NewConflict(leases, "", errors.New("the object has been modified")).ErrStatus
	if code == http.StatusNotFound {
		status = apierrors.NewNotFound(leases, "").ErrStatus
	}
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("sharded: %v", err)) // a Status has nothing that fails
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
