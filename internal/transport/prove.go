// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// Proof is a cluster's response to a single GET.
type Proof struct {
	// Status is the HTTP status.
	Status int
	// Body is the response body, or the first event of a watch, at most
	// Options.MaxErrorBody bytes. It comes from the remote side: never log it.
	Body []byte
	// Certificate is the fingerprint of the server's certificate. It is zero
	// without TLS.
	Certificate Fingerprint
}

// Candidate is an access that is not in use yet. It has its own connection, and
// Use adopts that same connection, so the access that was proven is the one
// that gets used. The caller must end a candidate with Use or Drop; the first
// call counts. A Candidate is safe for concurrent use.
type Candidate struct {
	s *Transport
	g *generation

	settled bool // used or dropped; guarded by Transport.mu
}

// Candidate prepares cfg. Apart from reading the files that cfg names, it does
// no I/O. An unusable cfg results in class BadConfig. cfg.Timeout, its rate
// limits and its RateLimiter are ignored; a cfg with a Transport is refused.
func (s *Transport) Candidate(cfg *rest.Config, revision string) (*Candidate, error) {
	a, err := newAccess(cfg, revision, s.opts.Dial)
	if err != nil {
		return nil, &Error{
			Cluster: s.opts.Cluster,
			Op:      "configure",
			Class:   BadConfig,
			Err:     &trusted{err: err},
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil, &Error{
			Cluster: s.opts.Cluster,
			Op:      "configure",
			Class:   Cut,
			Err:     ErrClosed,
		}
	}

	return &Candidate{s: s, g: s.generationLocked(a)}, nil
}

// Get sends a GET for path with the candidate's access. It bypasses the token
// bucket, and works while the transport is shut. The error, if any, is a
// *Error. If its class comes from the response, the Proof is filled in, too.
func (c *Candidate) Get(ctx context.Context, path string) (Proof, error) {
	return c.s.ask(ctx, path, func(ctx context.Context) (ticket, error) {
		t, err := c.g.enter(ctx)
		if errors.Is(err, errGone) {
			err = cmp.Or(c.g.ended(), error(ErrSuperseded))
		}
		return t, err
	})
}

// Use switches new requests to the candidate's access, including its
// connection. It fails after Drop, Use or Close.
func (c *Candidate) Use() error {
	s := c.s
	s.mu.Lock()
	if c.settled || s.closed {
		s.mu.Unlock()
		return &Error{
			Cluster: s.opts.Cluster,
			Op:      "configure",
			Class:   Cut,
			Err:     ErrClosed,
		}
	}

	c.settled = true
	old := s.current
	s.current = c.g
	c.g.adopted.Store(true)
	s.mu.Unlock()

	if at := c.g.answered.Load(); at != 0 {
		s.livedAt(at) // the candidate's proof counts as a sign of life from now on
	}
	if old != nil {
		old.retire()
	}
	s.opts.Logger.V(1).Info("using new access", "cluster", s.opts.Cluster, "revision", c.g.revision)

	return nil
}

// Drop closes the candidate's connection. It is a no-op after Use.
func (c *Candidate) Drop() {
	c.s.mu.Lock()
	unused := !c.settled
	c.settled = true
	c.s.mu.Unlock()

	if unused {
		c.g.end(ErrSuperseded)
	}
}

// Probe sends a GET for path with the access in use. It bypasses the token
// bucket, so that a busy cluster does not look like a dead one. The error, if
// any, is a *Error.
func (s *Transport) Probe(ctx context.Context, path string) (Proof, error) {
	return s.ask(ctx, path, s.enter)
}

// ProbeAside is like Probe, but does not wait for a connection that another
// request is making.
func (s *Transport) ProbeAside(ctx context.Context, path string) (Proof, error) {
	return s.ask(ctx, path, func(context.Context) (ticket, error) { return s.enterProof(false) })
}

// ProbeAnew is like ProbeAside, but uses a new connection.
func (s *Transport) ProbeAnew(ctx context.Context, path string) (Proof, error) {
	return s.ask(ctx, path, func(context.Context) (ticket, error) { return s.enterProof(true) })
}

func (s *Transport) enterProof(anew bool) (ticket, error) {
	return s.enterBy(func(g *generation) (ticket, error) { return g.enterProof(anew) })
}

// Warm makes the connection that watches will use, if there is none yet and
// watches have connections of their own. It sends no request. If the access is
// replaced meanwhile, Warm goes on with the new one.
func (s *Transport) Warm(ctx context.Context) error {
	for {
		g, err := s.live()
		if err != nil {
			return s.failed("connect", nil, err)
		}
		if err = s.warm(ctx, g); err == nil || ctx.Err() != nil || !g.replaced() {
			return err
		}
	}
}

// Warm is like Transport.Warm, for the candidate's access.
func (c *Candidate) Warm(ctx context.Context) error { return c.s.warm(ctx, c.g) }

func (s *Transport) warm(ctx context.Context, g *generation) error {
	w := g.watches
	if !w.multiplexed() || w.transport.Connections() > 0 {
		return nil
	}
	if !s.begin() {
		return s.failed("connect", nil, ErrClosed)
	}
	defer s.running.Done()

	err := w.transport.Connect(ctx, g.rewrite(s.base))
	switch {
	case err == nil:
	case errors.Is(err, h2.ErrNotHTTP2):
		w.plain.Store(true)
	default:
		if cause := w.lane.ended(true); cause != nil {
			err = cause
		} else if ctx.Err() != nil {
			err = contextError(ctx, ctx.Err())
		}
		return s.failed("connect", g, err)
	}

	return nil
}

// probingKey marks the contexts of the single GETs in this file.
type probingKey struct{}

// Probing reports whether ctx, the context of a dial, belongs to a Probe or a
// Candidate's Get.
func Probing(ctx context.Context) bool { return ctx.Value(probingKey{}) != nil }

// ask sends one GET and judges the response.
func (s *Transport) ask(ctx context.Context, path string, enter entrance) (Proof, error) {
	ctx = context.WithValue(ctx, probingKey{}, true)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	if err != nil {
		return Proof{}, &Error{
			Cluster: s.opts.Cluster,
			Op:      "GET",
			Class:   BadConfig,
			Err:     errors.New("bad path"),
		}
	}

	req.Header.Set("Accept", "application/json")
	if !s.begin() {
		return Proof{}, s.fail(req, Cut, ErrClosed)
	}
	defer s.running.Done()

	t, resp, err := s.dispatch(req, enter)
	if err != nil {
		return Proof{}, err
	}
	proof := Proof{Status: resp.StatusCode, Certificate: fingerprint(resp.TLS)}
	header := resp.Header
	if resp, err = s.admit(req, resp, t.lane, false, true); err != nil {
		return proof, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := s.judge(req, proof.Status, header); isWatch(req) && err == nil {
		proof.Body, err = s.firstEvent(req, resp.Body)
		return proof, err
	}
	proof.Body, err = io.ReadAll(io.LimitReader(resp.Body, s.opts.MaxErrorBody))
	if err != nil {
		return proof, err
	}
	return proof, s.judge(req, proof.Status, header)
}

// firstEvent reads only the first event of a watch.
func (s *Transport) firstEvent(req *http.Request, body io.Reader) ([]byte, error) {
	var event json.RawMessage
	err := json.NewDecoder(io.LimitReader(body, s.opts.MaxErrorBody)).Decode(&event)
	if _, told := errors.AsType[*Error](err); err != nil && !told {
		return nil, s.fail(req, NotKubernetes, fmt.Errorf("no event: %w", ErrNotKubernetes))
	}
	return event, err
}

// judge returns the error that a response stands for, or nil.
func (s *Transport) judge(req *http.Request, status int, header http.Header) error {
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	foreign := media == "text/html" || media == "application/xhtml+xml"
	switch {
	case status >= 200 && status < 300 && !foreign:
		return nil
	// An HTML page with 403 or 404 says nothing about an API server behind it.
	// Other failures mean the same whether a proxy or an API server reports
	// them.
	case foreign && (status < 300 || status == http.StatusForbidden || status == http.StatusNotFound):
		return s.fail(req, NotKubernetes, fmt.Errorf("status %d: an HTML page, %w", status, ErrNotKubernetes))
	}

	return s.fail(req, classifyStatus(status), answerOf(status))
}

func fingerprint(state *tls.ConnectionState) Fingerprint {
	if state == nil || len(state.PeerCertificates) == 0 {
		return Fingerprint{}
	}
	return sha256.Sum256(state.PeerCertificates[0].Raw)
}
