// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/clustercache"
)

// patience is how long to wait for operations that take milliseconds on an idle
// machine.
const patience = 20 * time.Second

// look is the polling interval for conditions without notifications.
const look = 25 * time.Millisecond

// story is one run: the operator, its observations, and the output.
type story struct {
	out      *printer
	journal  *journal
	operator *operator
	met      int // number of expectations met
}

// unmetError indicates that an expectation was not met.
type unmetError struct{ expected, got string }

// Error implements error.
func (e *unmetError) Error() string { return fmt.Sprintf("expected %s; got %s", e.expected, e.got) }

// errOperatorEnded indicates that the operator ended by itself.
var errOperatorEnded = errors.New("the operator ended")

// ok prints that an expectation is met, and counts it.
func (s *story) ok(format string, args ...any) {
	s.met++
	s.out.ok(format, args...)
}

// expect checks an expectation, and prints that it is met.
func (s *story) expect(met bool, expected, got string) error {
	if !met {
		return &unmetError{expected: expected, got: got}
	}
	s.ok("%s (%s)", expected, got)
	return nil
}

// await waits until check returns nil. It checks again after each report of the
// reconciler, and returns how long that took.
func (s *story) await(
	ctx context.Context, within time.Duration, expected string, check func() error,
) (time.Duration, error) {
	begin := time.Now()
	limit := time.NewTimer(within)
	defer limit.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		news := s.journal.news() // before the check, so that no later report is missed
		err := check()
		if err == nil {
			return time.Since(begin), nil
		}
		select {
		case <-news:
		case <-tick.C:
		case <-limit.C:
			return within, &unmetError{expected: fmt.Sprintf("%s within %s", expected, within), got: err.Error()}
		case <-ctx.Done():
			return time.Since(begin), context.Cause(ctx)
		}
	}
}

// during runs the operator while tell runs, and returns when both have ended.
func (s *story) during(ctx context.Context, tell func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := s.operator.run(ctx)
		cancel(errOperatorEnded)
		ended <- err
	}()
	err := tell(ctx)
	if _, unmet := errors.AsType[*unmetError](err); unmet {
		s.table()
	}
	cancel(nil)
	begin := time.Now()
	err = errors.Join(err, <-ended)
	s.out.say("the operator has stopped, %s after it was told to", brief(time.Since(begin)))
	return err
}

func (s *story) clusters() *clustercache.ClusterCache { return s.operator.clusters }

// table prints the state of the clusters.
func (s *story) table() {
	s.out.table(s.journal.table(s.clusters().Statuses(), time.Now()))
}

// stay prints the table from time to time until ctx ends.
func (s *story) stay(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.table()
		case <-ctx.Done():
			return
		}
	}
}

// brief rounds a duration to a readable precision.
func brief(d time.Duration) time.Duration {
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
