// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package callback calls functions of the user, whose panics must not end the
// process, nor go unnoticed.
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

// PanicError says that a callback panicked.
type PanicError struct {
	// Callback is the field or method that it was given as.
	Callback string
	// Value is what it panicked with, as far as it is shown.
	Value string
	// Stack is the stack of the panic. It has no values but pointers.
	Stack []byte

	cause error
}

// Error names the callback and the value.
func (e *PanicError) Error() string {
	if e.Value == "" {
		return e.Callback + " panicked"
	}
	return e.Callback + " panicked: " + e.Value
}

// Unwrap returns the error it panicked with, if that was one.
func (e *PanicError) Unwrap() error { return e.cause }

// errGoexit indicates that a callback ended its goroutine.
var errGoexit = errors.New("called runtime.Goexit")

// Protect returns what f returns, or a [*PanicError] if it panics.
func Protect(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught(name, v, true)
		}
	}()
	return f()
}

// ProtectSecret is Protect for a function that is given secrets: of what it
// panics with, only an error of the runtime is shown, which holds none.
func ProtectSecret(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught(name, v, false)
		}
	}()
	return f()
}

// Caught makes the error of a panic that was recovered.
func Caught(name string, value any) *PanicError { return caught(name, value, true) }

func caught(name string, value any, show bool) *PanicError {
	e := &PanicError{Callback: name, Stack: debug.Stack()}
	fault, runtimeError := value.(runtime.Error)
	switch {
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

// Aside starts f, which may be deaf to every signal, on a goroutine of its own,
// and returns a channel with its error. A panic is an error, and so is the end of
// the goroutine by runtime.Goexit.
func Aside(name string, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := error(&PanicError{Callback: name, Value: errGoexit.Error(), cause: errGoexit})
		defer func() { done <- err }()
		err = Protect(name, f)
	}()
	return done
}
