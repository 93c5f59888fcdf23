// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

var (
	// ErrClosed indicates that the collector has stopped: the ctx of Run has
	// ended.
	ErrClosed = errors.New("gc: closed")

	// ErrRunning indicates that Run was called a second time.
	ErrRunning = errors.New("gc: already running")

	// ErrDropped indicates that the owner was dropped while its declaration was
	// under way; the declaration had no effect.
	ErrDropped = errors.New("gc: owner dropped while declaring")

	// ErrPartial indicates that a liveness query could see only part of what it
	// needs: one of several clusters did not answer, say, or a cache has not
	// synced yet. InUse returns it, wrapped or not, for "I do not know". Like
	// any other error it never collects; unlike the others it is not logged as
	// an error.
	ErrPartial = errors.New("gc: partial information")

	// errGoexit stands for a callback that ended its goroutine by
	// runtime.Goexit.
	errGoexit = errors.New("gc: callback ended its goroutine")
)

// ResourceError says which resource a failure is about. Unwrap gives the cause.
type ResourceError[R comparable] struct {
	// Resource is the resource that could not be acquired, or whose Release
	// panicked.
	Resource R
	// Err is the cause: what Acquire returned, a *PanicError, ErrClosed, or the
	// error of the caller's ctx.
	Err error
}

// Error implements error.
func (e *ResourceError[R]) Error() string { return fmt.Sprintf("resource %v: %v", e.Resource, e.Err) }

// Unwrap returns the cause.
func (e *ResourceError[R]) Unwrap() error { return e.Err }

// OwnerError says which owner could not be looked at. Unwrap gives the cause.
type OwnerError[O comparable] struct {
	// Owner is the owner the look was about.
	Owner O
	// Err is the cause: what InUse returned, a *PanicError, or
	// context.DeadlineExceeded after a time-out.
	Err error
}

// Error implements error.
func (e *OwnerError[O]) Error() string { return fmt.Sprintf("owner %v: %v", e.Owner, e.Err) }

// Unwrap returns the cause.
func (e *OwnerError[O]) Unwrap() error { return e.Err }

// PanicError is a panic of a callback, handed on as an error so that neither
// the books nor the loop suffer.
type PanicError struct {
	// Callback is the name of the callback: "Acquire", "Release" or "InUse".
	Callback string
	// Value is what it panicked with.
	Value any
	// Stack is the stack of the panic.
	Stack []byte
}

// Error implements error. It leaves the stack out.
func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.Callback, e.Value) }

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// protect calls f and turns a panic into an error.
func protect(callback string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Callback: callback, Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// ended returns why ctx ended, in terms a caller can test for: ErrClosed if we
// ended it, else the error of ctx.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return ctx.Err()
}
