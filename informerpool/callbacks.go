// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"io"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// forgetSource lets the source drop its state for a key, unless the pool has
// another informer for that key by now.
func (p *Pool) forgetSource(key Key) {
	source, keeps := p.options.Source.(interface{ forget(key Key) })
	if !keeps {
		return
	}
	p.mu.Lock() // so that no informer for the key starts meanwhile
	defer p.mu.Unlock()
	if p.mu.informers[key] == nil {
		source.forget(key)
	}
}

// call calls a user's function on this goroutine. It logs a panic, reports it
// to OnPanic, and returns it as an error. If the function ends the goroutine,
// that is logged and reported in the same way; the caller's deferred functions
// then have to continue.
func (p *Pool) call(name string, key Key, f func() error, keysAndValues ...any) (err error) {
	returned := false
	defer func() {
		if v := recover(); !returned {
			err = p.failed(callback.Caught(name, v), key, keysAndValues...)
		}
	}()
	err = f()
	returned = true
	return err
}

// callApart is call on a separate goroutine, so that the function ending its
// goroutine becomes an error, too. It is for functions that are called seldom,
// or do not wait for long.
func (p *Pool) callApart(name string, key Key, f func() error, keysAndValues ...any) error {
	var err error
	failure := callback.Apart(name, func() error {
		err = f()
		return nil
	})
	if caught, ok := errors.AsType[*callback.PanicError](failure); ok {
		return p.failed(caught, key, keysAndValues...)
	}
	return err
}

// failed logs and reports that a user's function panicked, or ended its
// goroutine.
func (p *Pool) failed(caught *callback.PanicError, key Key, keysAndValues ...any) error {
	keysAndValues = append([]any{"informer", key.String()}, keysAndValues...)
	callback.Log(p.options.Logger, caught, "Callback panicked", keysAndValues...)
	p.panicked(caught.Callback)
	return caught
}

// panicked reports a panic to OnPanic, which may panic as well.
func (p *Pool) panicked(name string) {
	if p.options.OnPanic == nil {
		return
	}
	_ = callback.Apart("OnPanic", func() error {
		p.options.OnPanic(name)
		return nil
	})
}

// calledBody is a body that a user's source returned.
type calledBody struct {
	io.ReadCloser

	pool *Pool
	key  Key
}

// Read implements io.Reader. Idle informers wait here, and there is no separate
// goroutine for it.
func (b *calledBody) Read(data []byte) (n int, err error) {
	err = b.pool.call("Source", b.key, func() (err error) {
		n, err = b.ReadCloser.Read(data)
		return err
	})
	return n, err
}

// Close implements io.Closer.
func (b *calledBody) Close() error {
	return b.pool.callApart("Source", b.key, b.ReadCloser.Close)
}
