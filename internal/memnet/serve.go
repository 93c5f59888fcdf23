// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"io"
	"log"
	"net/http"
	"sync"
)

// Serve runs a server on l until stop is called, with TLS if the server has a
// TLSConfig. Errors of connections are logged only if it has an ErrorLog. stop
// blocks until all calls of the server's handler have returned.
func Serve(l *Listener, server *http.Server) (stop func()) {
	handler := &counted{next: server.Handler}
	server.Handler = handler
	if server.ErrorLog == nil {
		server.ErrorLog = log.New(io.Discard, "", 0)
	}

	var serving sync.WaitGroup
	serving.Go(func() {
		if server.TLSConfig == nil {
			_ = server.Serve(l)
		} else {
			_ = server.ServeTLS(l, "", "")
		}
	})

	return sync.OnceFunc(func() {
		_ = server.Close()
		l.Down()
		serving.Wait()
		handler.stop()
	})
}

// counted is a handler whose running calls can be waited for.
type counted struct {
	next  http.Handler
	calls sync.WaitGroup

	mu      sync.Mutex // protects stopped
	stopped bool
}

// ServeHTTP implements http.Handler.
func (h *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return
	}
	h.calls.Add(1) // not later: stop would not wait for a call that begins meanwhile
	h.mu.Unlock()

	defer h.calls.Done()
	h.next.ServeHTTP(w, r)
}

// stop waits for the running calls. Later calls do nothing.
func (h *counted) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()

	h.calls.Wait()
}
