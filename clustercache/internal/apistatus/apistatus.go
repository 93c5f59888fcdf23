// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package apistatus distinguishes what the API server answered from what only
// looks like it: the answer of a gateway, or to another question.
//
// # Tests
//
// The leading test is TestEachUseOfAStatusIsAboutSomething, which reads the
// library's own code.
package apistatus

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SaysAbsent reports whether an error is the answer that the object does not
// exist. An error that merely wraps such an answer, to another question, does
// not count.
func SaysAbsent(err error) bool {
	return IsAnswer(err) && apierrors.IsNotFound(err)
}

// OfGateway reports whether an error is not explained by the status of an API
// server: a gateway in between answered, or the path is not served. Neither
// knows which objects exist.
func OfGateway(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsAnswer reports whether an error is itself the status that the API server
// answered with. An error that merely wraps a status does not count.
func IsAnswer(err error) bool {
	_, itself := any(err).(*apierrors.StatusError)
	return itself
}

// AboutOther hides the cause of an error from apimachinery's functions if they
// would take it for an answer about the object, although it answers another
// question: about the Secret of a cluster that is not connected, or about a
// path that a proxy does not know. Otherwise a caller that ignores NotFound
// errors would take the object for absent.
func AboutOther(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsGone(err) || apierrors.IsResourceExpired(err) || apierrors.IsInvalid(err) {
		return &otherError{err}
	}
	return err
}

// otherError hides the API status of an error from errors.As. Everything else
// about the error can be found.
type otherError struct{ err error }

func (e *otherError) Error() string { return e.err.Error() }

// Is implements errors.Is.
func (e *otherError) Is(target error) bool { return errors.Is(e.err, target) }

// As implements errors.As.
func (e *otherError) As(target any) bool {
	switch target.(type) {
	case *apierrors.APIStatus, **apierrors.StatusError:
		return false
	}
	return errors.As(e.err, target)
}
