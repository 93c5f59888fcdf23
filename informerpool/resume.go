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
	// list is tried, and maxUnresumed the maximum time between such lists. Even
	// if the refusal looks temporary, a list may be the only request that
	// works: the right to watch was revoked, or a proxy lets no watch through.
	firstUnresumed = 30 * time.Second
	maxUnresumed   = 5 * time.Minute
)

// resumeError marks an error of a watch that a server refused to resume,
// although it had just answered the history question.
type resumeError struct{ error }

// Unwrap returns the error that the watch failed with.
func (e resumeError) Unwrap() error { return e.error }

// asResumeError marks the error of a resume.
func asResumeError(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err // a broken connection is no refusal
	}
	return resumeError{err}
}

// failures are what keeps failing although the server answers.
type failures struct {
	unanswered time.Time   // since when the history question is unanswered
	resumes    int         // resumes in a row that failed with an error inside the server
	refused    unresumable // resumes that were refused
	streams    int         // streamed lists in a row that failed with an error inside the server
	away       bool        // the server was not available since the last list or resume
}

// unresumable counts refusals of resumes in a row.
type unresumable struct {
	since    time.Time     // of the first one; zero if there is none
	patience time.Duration // before the next list
}

// lists records a refusal. It reports whether a list is due.
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

// followed records that a stream was followed.
func (r *reflector) followed() { r.failures.resumes, r.failures.refused = 0, unresumable{} }

// refusesResuming reports whether a server has refused to resume for so long
// that a list is due.
func (r *reflector) refusesResuming(err error) bool {
	_, resuming := errors.AsType[resumeError](err)
	return resuming && r.failures.refused.lists()
}
