// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var errNilHandler = errors.New("handler is nil")

// endedWaitError is why a wait for a first list ended with its context. It is a
// timeout to apierrors.IsTimeout, as in controller-runtime's cache, and what it
// was.
type endedWaitError struct{ err error }

// ended marks the error of a wait if it was the context that ended.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &endedWaitError{err: err}
}

// Error implements error.
func (e *endedWaitError) Error() string { return e.err.Error() }

// Unwrap returns the cause, and a timeout.
func (e *endedWaitError) Unwrap() []error {
	return []error{e.err, apierrors.NewTimeoutError(e.err.Error(), 0)}
}
