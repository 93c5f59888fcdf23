// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
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

// call calls a function of the user. A panic is logged and reported to OnPanic,
// and becomes an error.
func (p *Pool) call(name string, key Key, f func() error, keysAndValues ...any) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		caught := callback.Caught(name, v)
		callback.Log(p.options.Logger, caught, name+" panicked", append([]any{"informer", key.String()}, keysAndValues...)...)
		err = caught
		p.panicked(name)
	}()
	return f()
}

// panicked reports a panic to OnPanic, which may panic as well.
func (p *Pool) panicked(name string) {
	if p.options.OnPanic == nil {
		return
	}
	_ = callback.Protect("OnPanic", func() error {
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

// Read implements io.Reader.
func (b *calledBody) Read(data []byte) (n int, err error) {
	err = b.pool.call("Source", b.key, func() (err error) {
		n, err = b.ReadCloser.Read(data)
		return err
	})
	return n, err
}

// Close implements io.Closer.
func (b *calledBody) Close() error {
	return b.pool.call("Source", b.key, b.ReadCloser.Close)
}
