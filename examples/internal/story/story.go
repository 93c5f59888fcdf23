// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is how long to wait for operations that take milliseconds on an idle
// machine.
const Patience = 20 * time.Second

// Look is the polling interval for conditions without notifications.
const Look = 25 * time.Millisecond

// Story checks what a program shows, prints what is as expected, and counts it.
// It is used by one goroutine.
type Story struct {
	*Printer

	// Changed returns a channel that is closed by the next change that Await
	// may wait for; nil: there are no notifications.
	Changed func() <-chan struct{}

	// Met is the number of expectations met.
	Met int
}

// UnmetError indicates that an expectation was not met.
type UnmetError struct{ Expected, Got string }

// Error implements error.
func (e *UnmetError) Error() string { return fmt.Sprintf("expected %s; got %s", e.Expected, e.Got) }

// Chapter is a part of a story, with a title of its own.
type Chapter struct {
	Title string
	Tell  func(context.Context) error
}

// Tell prints the title of each chapter and runs it, until one fails, and at the
// end how many expectations were met.
func (s *Story) Tell(ctx context.Context, chapters ...Chapter) error {
	for _, c := range chapters {
		s.Chapter(c.Title)
		if err := c.Tell(ctx); err != nil {
			return err
		}
	}
	s.Say("%d expectations, all met", s.Met)
	return nil
}

// ErrEnded is the cause of the end of a context that During has made.
var ErrEnded = errors.New("the operator ended")

// During runs an operator while show runs, and returns when both have ended. If
// the operator ends by itself, the context of show ends.
func During(ctx context.Context, operator, show func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := operator(ctx)
		cancel(ErrEnded)
		ended <- err
	}()
	err := show(ctx)
	cancel(nil)
	return errors.Join(err, <-ended)
}

// Sleep waits for a time.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// OK prints that an expectation is met, and counts it.
func (s *Story) OK(format string, args ...any) {
	s.Met++
	s.Printer.OK(format, args...)
}

// Expect prints that an expectation is met, and counts it. If it is not met,
// Expect returns an UnmetError.
func (s *Story) Expect(met bool, expected, got string) error {
	if !met {
		return &UnmetError{Expected: expected, Got: got}
	}
	s.OK("%s (%s)", expected, got)
	return nil
}

// Await waits until check returns nil, and returns how long that took. It calls
// check at once, after each change, and after each Look. If that takes longer
// than within, it returns an UnmetError with the last error of check; if ctx
// ends, its cause.
func (s *Story) Await(
	ctx context.Context, within time.Duration, expected string, check func() error,
) (time.Duration, error) {
	begin := time.Now()
	limit := time.NewTimer(within)
	defer limit.Stop()
	tick := time.NewTicker(Look)
	defer tick.Stop()
	for {
		var changed <-chan struct{}
		if s.Changed != nil {
			changed = s.Changed() // before the check, so that no later change is missed
		}
		err := check()
		if err == nil {
			return time.Since(begin), nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-limit.C:
			return within, &UnmetError{Expected: fmt.Sprintf("%s within %s", expected, within), Got: err.Error()}
		case <-ctx.Done():
			return time.Since(begin), context.Cause(ctx)
		}
	}
}

// Brief rounds a duration to a readable precision.
func Brief(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
