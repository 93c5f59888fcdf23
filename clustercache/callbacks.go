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

// deafAfter is how long a function of the user may go on after its context has
// ended. Then nobody waits for it any more, and its goroutine is left behind.
const deafAfter = 100 * time.Millisecond

// deafError says that a function of the user did not return although its
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

// underWay are the functions of the user that are being called, so that the end
// can name those it does not wait for.
type underWay struct {
	mu    sync.Mutex // protects what follows; nothing else is locked under it
	calls map[string]int
	none  chan struct{} // closed when the last call ends; nil if nothing waits
}

// wait waits until no function of the user is being called, or ctx ends. A dial
// returns on a goroutine of net/http, a moment after the request it was for.
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

// enter notes a call until exit is called.
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

// Protect calls a function that an operator gave to an adapter such as
// clustercache/multicluster, and returns its error. A panic, and the end of its
// goroutine, as by t.FailNow, become an error that names the callback; it is
// logged with the keys and values, and counted by
// fleetcache_callback_panics_total. While the function runs at the end of
// Start, the error of Start names it.
func (cc *ClusterCache) Protect(callback string, f func() error, keysAndValues ...any) error {
	return cc.call(callback, f, keysAndValues...)
}

// call calls a function of the user, on a goroutine of its own, since it may
// end that, and waits for it. A panic is counted and logged, and becomes an
// error.
func (cc *ClusterCache) call(name string, f func() error, keysAndValues ...any) error {
	defer cc.underWay.enter(name)()
	err := callback.Apart(name, f)
	if p, ok := errors.AsType[*callback.PanicError](err); ok && p.Callback == name {
		return cc.panicked(p, keysAndValues...)
	}
	return err
}

// panicked counts and logs the panic of a function of the user.
func (cc *ClusterCache) panicked(p *callback.PanicError, keysAndValues ...any) error {
	cc.metrics.panics.WithLabelValues(p.Callback).Inc()
	callback.Log(cc.log, p, "Callback panicked", append([]any{"callback", p.Callback}, keysAndValues...)...)
	return p
}

// aside calls a function of the user on a goroutine of its own, and returns
// what it returned, or that it is deaf: then the goroutine is left behind, and
// late is given what it returns in the end. A panic becomes an error.
func aside[T any](ctx context.Context, cc *ClusterCache, name string, f func() (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	exit := cc.underWay.enter(name)
	results := make(chan result) // taken, or left to late
	given := make(chan struct{}) // closed when nobody takes it any more
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

// bounded makes a dialer of the user heed its context, and tells it of our end:
// net/http goes on with a dial for a while after its request was cancelled.
func (cc *ClusterCache) bounded(name string, dial transport.DialFunc) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		// It is not cancelled with the dial: a dialer may have its connection
		// heed it.
		defer context.AfterFunc(cc.ctx, func() { cancel(ErrClosed) })()
		return aside(ctx, cc, name, func() (net.Conn, error) { return dial(ctx, network, address) }, func(conn net.Conn, err error) {
			if err == nil && conn != nil {
				_ = conn.Close()
			}
		})
	}
}
