// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package callback calls the user's functions. If such a function panics, or
// ends its goroutine (by [runtime.Goexit], which t.FailNow also calls), the
// process must not end, other callers must not wait forever, and the failure
// must be reported.
//
// The end of a goroutine cannot be recovered from, so [Apart] and [Until] run
// the function on a goroutine of its own, which costs about a microsecond. Where
// that is too much, the caller's own goroutine ends, and its deferred functions
// must do the rest of its work; [Caught] helps them. [Goroutine] numbers
// goroutines, so that a callback is recognized that closes what calls it.
//
// # Tests
//
// The leading test is TestHazardPanicOfEachCallback (test/hostile).
package callback

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
)

// maxValue is how many bytes of a panic's value are shown.
const maxValue = 512

// PanicError indicates that a callback panicked, or ended its goroutine.
type PanicError struct {
	// Callback is the name of the field or method through which the callback
	// was provided.
	Callback string
	// Value is the value of the panic, as far as it may be shown.
	Value string
	// Stack is the stack of the panic. The only values in it are pointers.
	Stack []byte

	cause error
}

// Error names the callback and the value.
func (e *PanicError) Error() string {
	switch {
	case errors.Is(e.cause, ErrGoexit):
		return e.Callback + " " + e.Value
	case e.Value == "":
		return e.Callback + " panicked"
	}

	return e.Callback + " panicked: " + e.Value
}

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error { return e.cause }

// ErrGoexit indicates that a callback ended its goroutine.
var ErrGoexit = errors.New("called runtime.Goexit")

// Apart runs f on a goroutine of its own and returns what it returns, or a
// [*PanicError] if f panics or ends that goroutine.
func Apart(name string, f func() error) error { return apart(name, f, true) }

// ApartSecret is like Apart, for a function that receives secrets: the value of
// its panic is shown only if it is an error of the runtime, which contains none.
func ApartSecret(name string, f func() error) error { return apart(name, f, false) }

func apart(name string, f func() error, show bool) error {
	done := make(chan error, 1)
	go func() {
		returned := false
		var err error
		defer func() {
			if !returned {
				err = caught(name, recover(), show)
			}
			done <- err
		}()
		err = f()
		returned = true
	}()
	return <-done
}

// Caught returns the error for a recovered panic. If value is nil, there was no
// panic and yet the callback did not return, so it has ended its goroutine. (A
// panic with nil is recovered as a [*runtime.PanicNilError].)
func Caught(name string, value any) *PanicError { return caught(name, value, true) }

func caught(name string, value any, show bool) *PanicError {
	e := &PanicError{Callback: name, Stack: debug.Stack()}
	fault, runtimeError := value.(runtime.Error)
	switch {
	case value == nil:
		e.Value, e.cause = ErrGoexit.Error(), ErrGoexit
	case runtimeError:
		e.Value, e.cause = fault.Error(), fault
	case show:
		e.Value = fmt.Sprint(value)
		e.cause, _ = value.(error)
	default:
		e.Value = fmt.Sprintf("a value of type %T", value)
	}

	if len(e.Value) > maxValue {
		e.Value = strings.ToValidUTF8(e.Value[:maxValue], "") + "…"
	}
	return e
}

// Log logs the error of a callback, and the stack at V(1).
func Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	log.Error(err, message, keysAndValues...)
	if p, ok := errors.AsType[*PanicError](err); ok {
		log.V(1).Info("Stack of the panic", "callback", p.Callback, "stack", string(p.Stack))
	}
}
