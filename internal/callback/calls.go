// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package callback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// deafAfter is how long a function may run after its context has ended. After
// that its caller stops waiting, and leaves its goroutine behind.
const deafAfter = 100 * time.Millisecond

// DeafError indicates that a function did not return although its context had
// ended.
type DeafError struct {
	Callback string
	Cause    error // why the context ended
}

// Error names the function.
func (e *DeafError) Error() string {
	return fmt.Sprintf("%s does not heed its context: %v", e.Callback, e.Cause)
}

// Unwrap returns why the context ended.
func (e *DeafError) Unwrap() error { return e.Cause }

// Calls calls the user's functions, and reports their panics. It counts the
// running calls by name, so that the error of a program that ends can name
// those it did not wait for. A nil *Calls neither reports nor counts.
type Calls struct {
	log     logr.Logger
	counted func(callback string)

	mu struct {
		sync.Mutex // nothing else is locked under it

		running map[string]int
		none    chan struct{} // closed when the last call ends; nil if no caller waits
	}
}

// NewCalls returns Calls that log panics to log, and pass the name of each
// function that panicked to counted.
func NewCalls(log logr.Logger, counted func(callback string)) *Calls {
	return &Calls{log: log, counted: counted}
}

// Wait waits until no function is running, or ctx ends. A dial returns on a
// goroutine of net/http, a moment after the request that caused it.
func (c *Calls) Wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.mu.running) == 0 {
		c.mu.Unlock()
		return
	}
	if c.mu.none == nil {
		c.mu.none = make(chan struct{})
	}
	none := c.mu.none
	c.mu.Unlock()

	select {
	case <-none:
	case <-ctx.Done():
	}
}

// Enter records a running call, until exit is called.
func (c *Calls) Enter(name string) (exit func()) {
	if c == nil {
		return func() {}
	}
	c.add(name, 1)
	return func() { c.add(name, -1) }
}

func (c *Calls) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.mu.running == nil {
		c.mu.running = map[string]int{}
	}
	if c.mu.running[name] += n; c.mu.running[name] == 0 {
		delete(c.mu.running, name)
	}
	if len(c.mu.running) == 0 && c.mu.none != nil {
		close(c.mu.none)
		c.mu.none = nil
	}
}

// String returns the names of the running functions.
func (c *Calls) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(c.mu.running)), ", ")
}

// Call calls a function and waits for it. The function runs on its own
// goroutine, because it may end that goroutine. A panic is counted and logged,
// and becomes an error.
func (c *Calls) Call(name string, f func() error, keysAndValues ...any) error {
	defer c.Enter(name)()
	err := Apart(name, f)
	if p, ok := errors.AsType[*PanicError](err); ok && p.Callback == name {
		return c.Panicked(p, keysAndValues...)
	}
	return err
}

// Panicked counts and logs the panic of a function, and returns it.
func (c *Calls) Panicked(p *PanicError, keysAndValues ...any) error {
	if c == nil {
		return p
	}
	c.counted(p.Callback)
	Log(c.log, p, "Callback panicked", append([]any{"callback", p.Callback}, keysAndValues...)...)
	return p
}

// Until calls a function on its own goroutine and returns its result. If the
// function does not heed the end of ctx, Until returns a [*DeafError] and
// leaves the goroutine behind; late receives the result in the end. A panic, or
// the end of the goroutine, becomes an error.
func Until[T any](
	ctx context.Context, c *Calls, name string, f func() (T, error), late func(T, error), keysAndValues ...any,
) (T, error) {
	type result struct {
		value T
		err   error
	}
	exit := c.Enter(name)
	results := make(chan result) // taken by Until, or left to late
	given := make(chan struct{}) // closed when Until no longer waits
	go func() {
		var r result
		returned := false
		defer func() {
			if !returned {
				r.err = c.Panicked(Caught(name, recover()), keysAndValues...)
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
		return none, &DeafError{Callback: name, Cause: context.Cause(ctx)}
	}
}
