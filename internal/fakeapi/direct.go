// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// direct passes requests to a server without a network.
type direct struct{ server *Server }

// RoundTrip implements http.RoundTripper. The handler runs until its response
// has been read to the end or closed, or the request's context ends.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(asAdmin(r.Context()))
	reader, writer := io.Pipe()
	answer := &pipedAnswer{header: http.Header{}, body: writer, started: make(chan struct{})}
	request := r.Clone(ctx)
	if request.Body == nil {
		request.Body = http.NoBody
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.server.ServeHTTP(answer, request)
		answer.WriteHeader(http.StatusOK)
		_ = writer.Close()
		_ = request.Body.Close()
	}()

	select {
	case <-answer.started:
	case <-r.Context().Done():
		cancel()
		_ = reader.Close()
		<-done
		return nil, context.Cause(r.Context())
	}

	return &http.Response{
		Status:        http.StatusText(answer.status),
		StatusCode:    answer.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        answer.header,
		ContentLength: -1,
		Request:       r,
		Body:          &pipedBody{PipeReader: reader, cancel: cancel, done: done},
	}, nil
}

// pipedAnswer is the handler's side of a response.
type pipedAnswer struct {
	header  http.Header
	body    *io.PipeWriter
	once    sync.Once
	status  int
	started chan struct{}
}

func (a *pipedAnswer) Header() http.Header { return a.header }

func (a *pipedAnswer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status = status
		close(a.started)
	})
}

func (a *pipedAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *pipedAnswer) Flush() { a.WriteHeader(http.StatusOK) }

// pipedBody is the client's side of a response. Closing it ends the handler and
// waits for it.
type pipedBody struct {
	*io.PipeReader

	cancel context.CancelFunc
	done   chan struct{}
}

func (b *pipedBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.done
	return err
}
