// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// deafAfter is how long a user's function may run after its context has ended.
// After that its caller stops waiting, and leaves its goroutine behind.
const deafAfter = 100 * time.Millisecond

// deafError indicates that a user's function did not return although its
// context had ended.
type deafError struct {
	callback string
	cause    error // why the context ended
}

// Error names the function.
func (e *deafError) Error() string {
	return fmt.Sprintf("%s does not heed its context: %v", e.callback, e.cause)
}

// Unwrap returns why the context ended.
func (e *deafError) Unwrap() error { return e.cause }

// underWay counts the running calls of user functions, by name, so that the
// error of Start can name those it did not wait for.
type underWay struct {
	mu    sync.Mutex // protects the fields below; nothing else is locked under it
	calls map[string]int
	none  chan struct{} // closed when the last call ends; nil if no caller waits
}

// wait waits until no user function is running, or ctx ends. A dial returns on
// a goroutine of net/http, a moment after the request that caused it.
func (u *underWay) wait(ctx context.Context) {
	u.mu.Lock()
	if len(u.calls) == 0 {
		u.mu.Unlock()
		return
	}
	if u.none == nil {
		u.none = make(chan struct{})
	}
	none := u.none
	u.mu.Unlock()

	select {
	case <-none:
	case <-ctx.Done():
	}
}

// enter records a running call, until exit is called.
func (u *underWay) enter(name string) (exit func()) {
	u.add(name, 1)
	return func() { u.add(name, -1) }
}

func (u *underWay) add(name string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()

	if u.calls == nil {
		u.calls = map[string]int{}
	}
	if u.calls[name] += n; u.calls[name] == 0 {
		delete(u.calls, name)
	}
	if len(u.calls) == 0 && u.none != nil {
		close(u.none)
		u.none = nil
	}
}

func (u *underWay) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(u.calls)), ", ")
}

// Protect calls f, a function that an operator gave to an adapter such as
// clustercache/multicluster, and returns its error. If f panics, or ends its
// goroutine as t.FailNow does, Protect returns an error that names the
// callback, logs it with the keys and values, and counts it in
// fleetcache_callback_panics_total. If f still runs when Start ends, the error
// of Start names it.
func (cc *ClusterCache) Protect(callback string, f func() error, keysAndValues ...any) error {
	return cc.call(callback, f, keysAndValues...)
}

// call calls a user's function and waits for it. The function runs on its own
// goroutine, because it may end that goroutine. A panic is counted and logged,
// and becomes an error.
func (cc *ClusterCache) call(name string, f func() error, keysAndValues ...any) error {
	defer cc.underWay.enter(name)()
	err := callback.Apart(name, f)
	if p, ok := errors.AsType[*callback.PanicError](err); ok && p.Callback == name {
		return cc.panicked(p, keysAndValues...)
	}
	return err
}

// panicked counts and logs the panic of a user's function.
func (cc *ClusterCache) panicked(p *callback.PanicError, keysAndValues ...any) error {
	cc.metrics.panics.WithLabelValues(p.Callback).Inc()
	callback.Log(cc.log, p, "Callback panicked", append([]any{"callback", p.Callback}, keysAndValues...)...)
	return p
}

// aside calls a user's function on its own goroutine and returns its result. If
// the function does not heed the end of ctx, aside returns a deafError and
// leaves the goroutine behind; late receives the result in the end. A panic
// becomes an error.
func aside[T any](ctx context.Context, cc *ClusterCache, name string, f func() (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	exit := cc.underWay.enter(name)
	results := make(chan result) // taken by aside, or left to late
	given := make(chan struct{}) // closed when aside no longer waits
	go func() {
		var r result
		returned := false
		defer func() {
			if !returned {
				r.err = cc.panicked(callback.Caught(name, recover()))
			}
			exit()
			select {
			case results <- r:
			case <-given:
				late(r.value, r.err)
			}
		}()
		r.value, r.err = f()
		returned = true
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	patience := time.NewTimer(deafAfter)
	defer patience.Stop()

	select {
	case r := <-results:
		return r.value, r.err
	case <-patience.C:
		close(given)
		var none T
		return none, &deafError{callback: name, cause: context.Cause(ctx)}
	}
}

// bounded makes a user's dialer heed its context, and cancels that context when
// the cache ends: net/http continues a dial for a while after its request was
// cancelled.
func (cc *ClusterCache) bounded(name string, dial transport.DialFunc) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		// The context is not cancelled when the dial returns: a dialer may bind
		// its connection to it.
		defer context.AfterFunc(cc.ctx, func() { cancel(ErrClosed) })()
		return aside(ctx, cc, name, func() (net.Conn, error) { return dial(ctx, network, address) }, func(conn net.Conn, err error) {
			if err == nil && conn != nil {
				_ = conn.Close()
			}
		})
	}
}
