// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// throttle is the cluster's token bucket.
type throttle struct {
	bucket *rate.Limiter // nil means no limit
	// open returns the channel that is closed when the transport is shut, and
	// the cause if it is shut already.
	open func() (shut <-chan struct{}, cause error)
}

func newThrottle(opts Options, open func() (<-chan struct{}, error)) throttle {
	if opts.QPS < 0 {
		return throttle{}
	}
	return throttle{bucket: rate.NewLimiter(rate.Limit(opts.QPS), opts.Burst), open: open}
}

// wait waits until the bucket admits one request. It fails at once if that
// would be after ctx's deadline, and as soon as the transport is shut.
func (t *throttle) wait(ctx context.Context) error {
	if t.bucket == nil {
		return ctx.Err()
	}
	shut, err := t.open()
	if err != nil {
		return err
	}
	token := t.bucket.Reserve()
	delay := token.Delay()
	if delay == 0 {
		return ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		token.Cancel()
		return &trusted{err: fmt.Errorf("request rate limit: no token before the deadline: %w",
			context.DeadlineExceeded)}
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-shut:
		if _, err = t.open(); err == nil {
			err = ErrShut // it was opened again meanwhile
		}
	}

	token.Cancel()

	return err
}

// maxRetryAfter is the longest that a response may ask clients to wait.
const maxRetryAfter = 30 * time.Second

// capRetryAfter bounds the Retry-After header: clients sleep for the full
// duration and ignore their own timeouts.
func capRetryAfter(h http.Header) {
	value := h.Get("Retry-After")
	if value == "" {
		return
	}
	wait := maxRetryAfter
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	seconds := int64(min(max(wait, 0), maxRetryAfter).Round(time.Second) / time.Second)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
}
