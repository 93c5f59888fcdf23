// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"context"
	"fmt"
	"sync"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Watch is the body of one watch.
type Watch struct {
	Ctx       context.Context //nolint:containedctx // the lifetime of the body
	Server    *Server
	Key       informerpool.Key
	Match     func(Object) bool
	News      chan struct{} // one slot
	From      uint64
	delivered uint64 // the last event offered; the server's lock protects it

	mu   sync.Mutex // protects the fields below
	Data []byte
	err  error
}

// offer sends an event as the selector sees it. It skips events from before the
// watch's start, even if the start lies in the future: that is how a server
// treats a client that has seen more than its restored history.
func (w *Watch) offer(e Change) {
	if e.Version <= w.From {
		return
	}
	w.delivered = e.Version
	is, was := e.Frame != "DELETED" && w.Match(e.Object), e.Frame != "ADDED" && w.Match(e.before)
	switch {
	case is && was:
		w.Push(Frame("MODIFIED", e.Object.JSON()))
	case is:
		w.Push(Frame("ADDED", e.Object.JSON()))
	case was:
		gone := e.before
		gone.Version = e.Version
		w.Push(Frame("DELETED", gone.JSON()))
	}
}

// Push adds bytes to the body.
func (w *Watch) Push(b []byte) {
	w.mu.Lock()
	w.Data = append(w.Data, b...)
	w.mu.Unlock()
	w.wake()
}

// End ends the body with an error.
func (w *Watch) End(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.wake()
}

func (w *Watch) wake() {
	select {
	case w.News <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *Watch) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		n := copy(p, w.Data)
		w.Data = w.Data[n:]
		err := w.err
		w.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-w.News:
		case <-w.Ctx.Done():
			return 0, w.Ctx.Err()
		}
	}
}

// Close implements io.Closer.
func (w *Watch) Close() error {
	w.Server.Mu.Lock()
	defer w.Server.Mu.Unlock()
	delete(w.Server.Watchers, w)
	return nil
}

// Frame returns one frame of a watch.
func Frame(kind string, object []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, object)
}

// BookmarkFrame returns a bookmark; end marks it as the end of the initial
// objects.
func BookmarkFrame(rv uint64, end bool) []byte {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return Frame("BOOKMARK", fmt.Appendf(nil,
		`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"%s}}`, rv, annotations))
}
