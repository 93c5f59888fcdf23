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

	// ErrPartial indicates that a liveness query saw only part of the
	// information it needs, such as when one of several clusters did not answer
	// or a cache has not synced yet. InUse returns it, wrapped or not, for "I
	// do not know". Like any other error it never causes a collection; unlike
	// others it is not logged as an error.
	ErrPartial = errors.New("gc: partial information")

	// errGoexit stands for a callback that ended its goroutine by
	// runtime.Goexit.
	errGoexit = errors.New("gc: callback ended its goroutine")
)

// ResourceError is a failure about one resource. Unwrap returns the cause.
type ResourceError[R comparable] struct {
	// Resource is the resource that could not be acquired, or whose Release
	// panicked.
	Resource R
	// Err is the cause: the error of Acquire, a *PanicError, ErrClosed, or the
	// error of the caller's ctx.
	Err error
}

// Error implements error.
func (e *ResourceError[R]) Error() string { return fmt.Sprintf("resource %v: %v", e.Resource, e.Err) }

// Unwrap returns the cause.
func (e *ResourceError[R]) Unwrap() error { return e.Err }

// OwnerError is a failed look at one owner. Unwrap returns the cause.
type OwnerError[O comparable] struct {
	// Owner is the owner that was looked at.
	Owner O
	// Err is the cause: the error of InUse, a *PanicError, or
	// context.DeadlineExceeded after a timeout.
	Err error
}

// Error implements error.
func (e *OwnerError[O]) Error() string { return fmt.Sprintf("owner %v: %v", e.Owner, e.Err) }

// Unwrap returns the cause.
func (e *OwnerError[O]) Unwrap() error { return e.Err }

// PanicError is a panic of a callback, returned as an error so that it corrupts
// neither the records nor the loop.
type PanicError struct {
	// Callback is the name of the callback: "Acquire", "Release", "InUse" or
	// "Collected".
	Callback string
	// Value is the value passed to panic.
	Value any
	// Stack is the stack of the panic.
	Stack []byte
}

// Error implements error. It omits the stack.
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

// apart is protect on a goroutine of its own, for a callback after which its
// caller has to go on, even if the callback ends its goroutine.
func apart(callback string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { done <- err }()
		err = protect(callback, f)
	}()
	return <-done
}

// ended returns why ctx ended, as an error that callers can test for: ErrClosed
// if the collector ended it, else the error of ctx.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return ctx.Err()
}
