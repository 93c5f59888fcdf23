// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// firstUnresumed is how long a server may refuse to resume watches before a
	// list is tried, and maxUnresumed how far the time to the next one grows.
	// Whatever the refusal says of this moment, a list can be all that works:
	// the right to watch was taken away, or something between lets no watch
	// through.
	firstUnresumed = 30 * time.Second
	maxUnresumed   = 5 * time.Minute
)

// resumeError marks an error as that of a watch that a server refused to
// resume, though it had just answered where its history is.
type resumeError struct{ error }

// Unwrap returns what the watch failed with.
func (e resumeError) Unwrap() error { return e.error }

// asResumeError marks the error of a resume.
func asResumeError(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err // a connection that breaks refuses nothing
	}
	return resumeError{err}
}

// unresumable are the refusals of resumes in a row.
type unresumable struct {
	since    time.Time     // of the first one; zero without any
	patience time.Duration // before the next list
}

// lists takes a refusal. It reports whether a list is due.
func (u *unresumable) lists() bool {
	switch {
	case u.since.IsZero():
		u.since, u.patience = time.Now(), max(u.patience, firstUnresumed)
		return false
	case time.Since(u.since) < u.patience:
		return false
	}
	u.since, u.patience = time.Time{}, min(2*u.patience, maxUnresumed)
	return true
}

// followed notes that a stream was followed.
func (f *feed) followed() { f.unresumed, f.unresumable = 0, unresumable{} }

// refusesResuming reports whether a server has refused to resume for so long
// that a list is due.
func (f *feed) refusesResuming(err error) bool {
	_, resuming := errors.AsType[resumeError](err)
	return resuming && f.unresumable.lists()
}
