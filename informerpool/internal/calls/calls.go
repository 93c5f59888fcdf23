// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package calls calls the functions that users of a pool have handed in: their
// source, handlers and hooks. Their panics are errors, logged and reported.
//
// # Tests
//
// The leading test is TestPanicsAreErrorsOfTheCall.
// TestHazardFunctionEndsItsGoroutine and TestHazardOnPanicPanics cover
// functions that do worse.
package calls

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// Caller calls users' functions on behalf of informers.
type Caller struct {
	// Logger receives a line for each panic.
	Logger logr.Logger
	// OnPanic is called after each panic with the name of the function; nil
	// means it is not.
	OnPanic func(callback string)
}

// Here calls a user's function on this goroutine. It logs a panic, reports it
// to OnPanic, and returns it as an error. If the function ends the goroutine,
// that is logged and reported in the same way; the caller's deferred functions
// then have to continue.
func (c *Caller) Here(name string, informer fmt.Stringer, f func() error, keysAndValues ...any) (err error) {
	returned := false
	defer func() {
		if v := recover(); !returned {
			err = c.failed(callback.Caught(name, v), informer, keysAndValues...)
		}
	}()
	err = f()
	returned = true
	return err
}

// Apart is Here on a separate goroutine, so that the function ending its
// goroutine becomes an error, too. It is for functions that are called seldom,
// or do not wait for long.
func (c *Caller) Apart(name string, informer fmt.Stringer, f func() error, keysAndValues ...any) error {
	var err error
	failure := callback.Apart(name, func() error {
		err = f()
		return nil
	})
	if caught, ok := errors.AsType[*callback.PanicError](failure); ok {
		return c.failed(caught, informer, keysAndValues...)
	}
	return err
}

// Tell is Apart for a function that returns nothing.
func (c *Caller) Tell(name string, informer fmt.Stringer, f func()) {
	_ = c.Apart(name, informer, func() error {
		f()
		return nil
	})
}

// failed logs and reports that a user's function panicked, or ended its
// goroutine.
func (c *Caller) failed(caught *callback.PanicError, informer fmt.Stringer, keysAndValues ...any) error {
	keysAndValues = append([]any{"informer", informer.String()}, keysAndValues...)
	callback.Log(c.Logger, caught, "Callback panicked", keysAndValues...)
	c.Panicked(caught.Callback)
	return caught
}

// Panicked reports a panic to OnPanic, which may panic as well.
func (c *Caller) Panicked(name string) {
	if c.OnPanic == nil {
		return
	}
	_ = callback.Apart("OnPanic", func() error {
		c.OnPanic(name)
		return nil
	})
}

// Body returns a body that a user's source has returned, with its methods
// called by c.
func (c *Caller) Body(body io.ReadCloser, informer fmt.Stringer) io.ReadCloser {
	return &calledBody{ReadCloser: body, caller: c, informer: informer}
}

type calledBody struct {
	io.ReadCloser

	caller   *Caller
	informer fmt.Stringer
}

// Read implements io.Reader. Idle informers wait here, and there is no separate
// goroutine for it. It does what Here does, on less stack.
func (b *calledBody) Read(data []byte) (n int, err error) {
	returned := false
	defer func() {
		if v := recover(); !returned {
			n, err = 0, b.caller.failed(callback.Caught("Source", v), b.informer)
		}
	}()
	n, err = b.ReadCloser.Read(data)
	returned = true
	return n, err
}

// Close implements io.Closer.
func (b *calledBody) Close() error {
	return b.caller.Apart("Source", b.informer, b.ReadCloser.Close)
}
