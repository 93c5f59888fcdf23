// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package credentialplugin runs the credential plugins of kubeconfigs, by the
// protocol of client.authentication.k8s.io. client-go's own runner waits for a
// plugin for as long as it runs, under a lock that all requests need: one that
// hangs blocks them for good. Here each request waits no longer than its
// context lasts, and a run that takes longer than [MaxRun] is killed.
//
// # Tests
//
// The leading test is TestHazardPluginThatHangsBlocksForGood.
package credentialplugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// MaxRun is how long a run may take. It is longer than requests wait, so
	// that a slow plugin serves the next request.
	MaxRun = 15 * time.Second
	// pause is the time for which the result of a run is used, also if it is an
	// error, or has expired: requests would otherwise start one process after
	// the other.
	pause = time.Second
)

// Credentials are what a plugin returned.
type Credentials struct {
	// Token is the bearer token; empty if there is none.
	Token string
	// Certificate is the client certificate; nil if there is none.
	Certificate *tls.Certificate

	asked   time.Time // when the run began
	expires time.Time // zero: never
}

// Plugin is one plugin with the credentials that it last returned. It is safe
// for concurrent use.
type Plugin struct {
	call  call
	ask   func(context.Context) ([]byte, error) // runs it
	name  string
	spawn func(func(context.Context)) bool

	mu struct {
		sync.Mutex // nothing else is locked under it

		last   *Credentials // nil: the plugin has to run
		failed *run         // the last run, if it failed
		flight *run         // the running one
	}
}

// run is one run of a plugin.
type run struct {
	began time.Time
	ended time.Time
	done  chan struct{}
	creds *Credentials // set, like ended and err, before done is closed
	err   error
}

// New returns the plugin that a configuration names, or nil if it names none, or
// has credentials that take precedence. Nothing runs before the first call of
// Credentials. spawn starts a goroutine whose context ends when its owner does,
// which waits for it; it returns false after that.
func New(config *rest.Config, spawn func(func(context.Context)) bool) (*Plugin, error) {
	if config.ExecProvider == nil || config.BearerToken != "" || config.BearerTokenFile != "" ||
		config.Username != "" || len(config.CertData) > 0 || config.CertFile != "" {
		return nil, nil //nolint:nilnil // as documented
	}
	if config.AuthProvider != nil {
		return nil, errors.New("a credential plugin and an auth provider cannot be used together")
	}
	c, err := newCall(config)
	if err != nil {
		return nil, err
	}
	return &Plugin{call: c, ask: c.run, name: filepath.Base(c.command), spawn: spawn}, nil
}

// Same reports whether two plugins are run in the same way. Either may be nil.
func (p *Plugin) Same(other *Plugin) bool {
	return p != nil && other != nil && reflect.DeepEqual(p.call, other.call)
}

// Credentials returns the last credentials, or waits for those of a run, no
// longer than ctx lasts. Its errors name the plugin by the last element of its
// command.
func (p *Plugin) Credentials(ctx context.Context) (*Credentials, error) {
	p.mu.Lock()
	if c := p.mu.last; c != nil && (c.expires.IsZero() || time.Now().Before(c.expires)) {
		p.mu.Unlock()
		return c, nil
	}
	r := p.runLocked()
	p.mu.Unlock()

	if r == nil {
		return nil, fmt.Errorf("credential plugin %s: %w", p.name, context.Canceled)
	}
	select {
	case <-r.done:
		return r.creds, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the credential plugin %s: %w", p.name, context.Cause(ctx))
	}
}

// runLocked returns the run under way, the last one if it has just failed, or a
// new one; nil if the owner has ended.
func (p *Plugin) runLocked() *run {
	if p.mu.flight != nil {
		return p.mu.flight
	}
	if failed := p.mu.failed; failed != nil && time.Since(failed.ended) < pause {
		return failed
	}
	r := &run{began: time.Now(), done: make(chan struct{})}
	if !p.spawn(func(ctx context.Context) { p.run(ctx, r) }) {
		return nil
	}
	p.mu.flight = r

	return r
}

func (p *Plugin) run(ctx context.Context, r *run) {
	ctx, cancel := context.WithTimeout(ctx, MaxRun)
	defer cancel()
	answer, err := p.ask(ctx)
	var creds *Credentials
	if err == nil {
		creds, err = p.call.decode(answer)
	}
	switch {
	case err == nil:
		creds.asked = r.began
		if soon := time.Now().Add(pause); !creds.expires.IsZero() && creds.expires.Before(soon) {
			creds.expires = soon
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("credential plugin %s was killed after %v: %w", p.name, MaxRun, ctx.Err())
	case ctx.Err() != nil:
		err = fmt.Errorf("credential plugin %s was killed: %w", p.name, ctx.Err())
	default:
		err = fmt.Errorf("credential plugin %s %w", p.name, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.flight, p.mu.failed, p.mu.last = nil, nil, creds
	r.ended, r.creds, r.err = time.Now(), creds, err
	if err != nil {
		p.mu.failed = r
	}
	close(r.done)
}

// Forget makes the plugin run again for the next request, unless its last run
// began after the given time, at which a request was sent that was rejected.
func (p *Plugin) Forget(sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.last != nil && p.mu.last.asked.Before(sent) {
		p.mu.last = nil
	}
}
