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
	"net"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/credentialplugin"
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
// that gets used. The caller must end a candidate with Use or Close; the first
// call counts. A Candidate is safe for concurrent use.
type Candidate struct {
	t *Transport
	g *generation

	done bool // used or closed; guarded by Transport.mu
}

// Candidate prepares cfg. Apart from reading the files that cfg names, it does
// no I/O. An unusable cfg results in class BadConfig. cfg.Timeout, its rate
// limits and its RateLimiter are ignored; a cfg with a Transport is refused.
func (t *Transport) Candidate(cfg *rest.Config, revision string) (*Candidate, error) {
	plugin, err := t.pluginOf(cfg)
	var a *access
	if err == nil {
		a, err = newAccess(cfg, revision, t.opts.Dial, plugin, throughLane{})
	}
	if err != nil {
		return nil, t.cluster.error("configure", BadConfig, &trusted{err: err})
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return nil, t.cluster.error("configure", Cut, ErrClosed)
	}

	return &Candidate{t: t, g: t.generationLocked(a)}, nil
}

// Swap makes new requests use cfg. Running requests and streams keep the access
// they started with; its connections are closed once they have ended. Apart
// from reading the files that cfg names, Swap does no I/O. It neither opens the
// transport nor proves anything: see Open and Candidate.
func (t *Transport) Swap(cfg *rest.Config, revision string) error {
	c, err := t.Candidate(cfg, revision)
	if err != nil {
		return err
	}
	return c.Use()
}

// pluginOf returns the credential plugin that cfg names, or nil. If it is the
// one of the last candidate, so are its credentials, and its run.
func (t *Transport) pluginOf(cfg *rest.Config) (*credentialplugin.Plugin, error) {
	if cfg == nil {
		return nil, nil //nolint:nilnil // newAccess refuses it
	}
	made, err := credentialplugin.New(cfg, t.spawn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.plugin.Same(made) {
		t.plugin = made
	}
	return t.plugin, err
}

// spawn starts a goroutine that Close waits for, and whose context it ends. It
// returns false after Close.
func (t *Transport) spawn(f func(context.Context)) bool {
	if !t.begin() {
		return false
	}
	go func() {
		defer t.running.Done()
		f(t.ctx)
	}()
	return true
}

// Get sends a GET for path with the candidate's access. It bypasses the token
// bucket, and works while the transport is shut. The error, if any, is a
// *Error. If its class comes from the response, the Proof is filled in, too.
func (c *Candidate) Get(ctx context.Context, path string) (Proof, error) {
	return c.t.ask(ctx, path, nil, func(ctx context.Context) (admission, error) {
		a, err := c.g.enterGet(ctx)
		if errors.Is(err, errGone) {
			err = cmp.Or(c.g.ended(), error(ErrSuperseded))
		}
		return a, err
	})
}

// Use switches new requests to the candidate's access, including its
// connection. It fails after Use, Close or [Transport.Close].
func (c *Candidate) Use() error {
	t := c.t
	t.mu.Lock()
	if c.done || t.closed {
		t.mu.Unlock()
		return t.cluster.error("configure", Cut, ErrClosed)
	}

	c.done = true
	old := t.current
	t.current = c.g
	c.g.adopted.Store(true)
	t.mu.Unlock()

	if at := c.g.answered.Load(); at != 0 {
		t.cluster.livedAt(at) // the candidate's proof counts as a sign of life from now on
	}
	if old != nil {
		old.retire()
	}
	t.opts.Logger.V(1).Info("using new access", "cluster", t.opts.Cluster, "revision", c.g.revision)

	return nil
}

// Close closes the candidate's connection. It is a no-op after Use.
func (c *Candidate) Close() {
	c.t.mu.Lock()
	unused := !c.done
	c.done = true
	c.t.mu.Unlock()

	if unused {
		c.g.end(ErrSuperseded)
	}
}

// ProbeAside sends a GET for path with the access in use. It bypasses the token
// bucket, so that a busy cluster does not look like a dead one, and over
// net/http it does not wait for a connection that another request is making.
// The error, if any, is a *Error.
func (t *Transport) ProbeAside(ctx context.Context, path string) (Proof, error) {
	return t.ask(ctx, path, nil, t.inUse((*generation).enterAside))
}

// ProbeOver is like ProbeAside, but uses the connection that Options.Dial
// returned as over if that has HTTP/2 and room for the request.
func (t *Transport) ProbeOver(ctx context.Context, path string, over net.Conn) (Proof, error) {
	return t.ask(ctx, path, over, t.inUse(func(g *generation, ctx context.Context) (admission, error) {
		if a, ok := g.enterOver(over); ok {
			return a, nil
		}
		return g.enterAside(ctx)
	}))
}

// Leave sends no more requests over the connection that Options.Dial returned
// as over: it leads to a server that answers otherwise than others do. What was
// sent goes on. Over net/http, the connections that are used with it are left
// as well.
func (t *Transport) Leave(over net.Conn) {
	if g, err := t.live(); err == nil {
		g.leave(over)
	}
}

// ProbeAnew is like ProbeAside, but uses a new connection of net/http.
func (t *Transport) ProbeAnew(ctx context.Context, path string) (Proof, error) {
	return t.ask(ctx, path, nil, t.inUse((*generation).enterAnew))
}

// probingKey marks the contexts of the single GETs in this file.
type probingKey struct{}

// Probing reports whether ctx, the context of a dial, belongs to a Probe or a
// Candidate's Get.
func Probing(ctx context.Context) bool { return ctx.Value(probingKey{}) != nil }

// ask sends one GET and judges the response. It prefers the connection over, if
// that is not nil. Other requests may be waiting for the response, so the
// request does not wait behind them for a stream.
func (t *Transport) ask(ctx context.Context, path string, over net.Conn, enter entrance) (Proof, error) {
	ctx = prefer(context.WithValue(ctx, probingKey{}, true), over)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL()+path, nil)
	if err != nil {
		return Proof{}, t.cluster.error("GET", BadConfig, errors.New("bad path"))
	}

	req.Header.Set("Accept", "application/json")
	if !t.begin() {
		return Proof{}, t.cluster.fail(req, Cut, ErrClosed)
	}
	defer t.running.Done()

	a, resp, err := t.dispatch(req, enter)
	if err != nil {
		return Proof{}, err
	}
	proof := Proof{Status: resp.StatusCode, Certificate: fingerprint(resp.TLS)}
	header := resp.Header
	if resp, err = t.admit(req, resp, a.sender, false, true); err != nil {
		return proof, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := t.cluster.judge(req, proof.Status, header); isWatch(req) && err == nil {
		proof.Body, err = t.firstEvent(req, resp.Body)
		return proof, err
	}
	proof.Body, err = io.ReadAll(io.LimitReader(resp.Body, t.opts.MaxErrorBody))
	if err != nil {
		return proof, err
	}
	return proof, t.cluster.judge(req, proof.Status, header)
}

// firstEvent reads only the first event of a watch.
func (t *Transport) firstEvent(req *http.Request, body io.Reader) ([]byte, error) {
	var event json.RawMessage
	err := json.NewDecoder(io.LimitReader(body, t.opts.MaxErrorBody)).Decode(&event)
	if _, known := errors.AsType[*Error](err); err != nil && !known {
		return nil, t.cluster.fail(req, NotKubernetes, fmt.Errorf("no event: %w", ErrNotKubernetes))
	}
	return event, err
}

func fingerprint(state *tls.ConnectionState) Fingerprint {
	if state == nil || len(state.PeerCertificates) == 0 {
		return Fingerprint{}
	}
	return sha256.Sum256(state.PeerCertificates[0].Raw)
}
