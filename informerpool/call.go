// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"io"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// forgetSource lets the source drop what it keeps of a key, unless there is
// another informer of it by now.
func (p *Pool) forgetSource(key Key) {
	source, keeps := p.options.Source.(interface{ forget(key Key) })
	if !keeps {
		return
	}
	p.mu.Lock() // so that none begins meanwhile
	defer p.mu.Unlock()
	if p.entries[key] == nil {
		source.forget(key)
	}
}

// call calls a function of the user on this goroutine. A panic is logged and
// reported to OnPanic, and becomes an error. That the function ends the
// goroutine is said in the same way; the caller's deferred functions have to go
// on then.
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

// callApart is call on a goroutine of its own, so that its end is an error,
// too. It is for what is called seldom, or does not wait for long.
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

// failed logs and reports that a function of the user panicked, or ended its
// goroutine.
func (p *Pool) failed(caught *callback.PanicError, key Key, keysAndValues ...any) error {
	callback.Log(p.options.Logger, caught, "Callback panicked", append([]any{"informer", key.String()}, keysAndValues...)...)
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

// calledBody is a body that a source of the user gave.
type calledBody struct {
	io.ReadCloser

	pool *Pool
	key  Key
}

// Read implements io.Reader. It is where idle informers wait, which have no
// goroutine to spare for it.
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
