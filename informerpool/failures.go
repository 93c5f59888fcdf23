// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"net/http"
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
	// maxUnanswered is how long a busy server may leave the history question
	// unanswered before a list is tried.
	maxUnanswered = 30 * time.Second
)

// listError marks an error as one of a list.
type listError struct{ error }

// Unwrap returns the error that the list failed with.
func (e listError) Unwrap() error { return e.error }

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
	forgot     time.Time   // when a server had not in memory what its storage did not answer
	resumes    int         // resumes in a row that failed with an error inside the server
	refused    unresumable // resumes that were refused
	streams    int         // streamed lists in a row that failed with an error inside the server
	lagging    time.Time   // since when lists are older than what was shown before they began
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
func (f *failures) followed() { f.resumes, f.refused = 0, unresumable{} }

// refusesResuming reports whether a server has refused to resume for so long
// that a list is due.
func (f *failures) refusesResuming(err error) bool {
	_, resuming := errors.AsType[resumeError](err)
	return resuming && f.refused.lists()
}

// listsInstead reports whether a failed history question is to be answered by a
// list. The question is the informer's own, and its user was not required to
// have the permission for it. So no refusal of the question, whatever its code,
// keeps the informer from a list, whose own refusal is the one to report to the
// user. A server that is merely busy is asked again for a while, since it would
// most likely have no time for a list either. A connection that breaks or is
// silent proves nothing.
func (f *failures) listsInstead(err error) bool {
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		return false
	}
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case answered && !busy(status.Status()), cannotStream(err):
		return true
	case answered && f.unanswered.IsZero():
		f.unanswered = time.Now()
	}

	return answered && time.Since(f.unanswered) >= maxUnanswered
}

// failsStreaming reports whether a server keeps failing at streamed lists:
// other requests may still work.
func (f *failures) failsStreaming(err error) bool {
	if !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) {
		f.streams = 0
		return false
	}
	f.streams++
	return f.streams >= maxUnstreamed
}

// failsResuming reports whether a server keeps failing at watches from the
// version that was reached: other requests may still work. Errors of the
// transport do not count: when a server fails at everything, including the
// proof of its identity, every informer would list once it recovers.
func (f *failures) failsResuming(err error) bool {
	if _, answered := errors.AsType[*apierrors.StatusError](err); !answered || !apierrors.IsInternalError(err) {
		return false
	}
	f.resumes++
	return f.resumes >= maxUnstreamed
}

// unavailable reports whether an error is the response of a server in front of
// another one that is not there.
func unavailable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
