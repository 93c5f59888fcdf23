// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// saysAbsent reports whether an error is the answer that there is no such object,
// and not one that merely has such an answer to another question as its cause.
func saysAbsent(err error) bool {
	return isAnswer(err) && apierrors.IsNotFound(err)
}

// ofGateway reports whether no status of an API server explains an error, but
// something between answered, or a path that is not served: neither knows which
// objects there are.
func ofGateway(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isAnswer reports whether an error is the status that the API server answered
// with, and not one that has a status somewhere.
func isAnswer(err error) bool {
	_, itself := any(err).(*apierrors.StatusError)
	return itself
}

// aboutOther hides from apimachinery's functions that the cause of an error is
// the answer to another question than was asked, if they take it to be about an
// object: the Secret of a cluster that is not connected, or a path that a proxy
// does not know. Whoever ignores that an object is not found would take the
// object for absent.
func aboutOther(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsGone(err) ||
		apierrors.IsResourceExpired(err) || apierrors.IsInvalid(err) {
		return &otherError{err}
	}
	return err
}

// otherError is an error whose API status cannot be found, and everything else
// can.
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
