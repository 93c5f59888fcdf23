// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrShut indicates that the transport is shut: its owner refuses new
	// requests, or cut this one.
	ErrShut = errors.New("cluster access is shut")
	// ErrClosed indicates that the transport was closed.
	ErrClosed = errors.New("cluster access is closed")
	// ErrNoAccess indicates that the transport has no configuration yet.
	ErrNoAccess = errors.New("cluster access is not configured yet")
	// ErrSuperseded indicates that a stream was cut because its credentials or
	// endpoint were replaced.
	ErrSuperseded = errors.New("stream cut: cluster access was replaced")
	// ErrRefused indicates that our own policy forbids the request: an address
	// that must not be dialed, a redirect, a request for another host.
	ErrRefused = errors.New("refused by policy")
	// ErrBodyTooLarge indicates that a response was larger than its budget.
	ErrBodyTooLarge = errors.New("response body exceeds its budget")
	// ErrNotKubernetes indicates that something other than a Kubernetes API
	// answered, such as a login page.
	ErrNotKubernetes = errors.New("not a Kubernetes API")
)

// Class is the kind of a failure. It decides whether to retry, to fetch new
// credentials or to give up.
type Class string

// The classes of failures.
const (
	// Unknown is every failure that fits no other class.
	Unknown Class = "Unknown"
	// Unauthorized means that the cluster rejected the credentials (401, or a
	// TLS alert about our certificate).
	Unauthorized Class = "Unauthorized"
	// Forbidden means that the credentials are valid but do not permit the
	// request (403).
	Forbidden Class = "Forbidden"
	// NotFound means that the path does not exist (404, 410 of anything but a
	// watch's history).
	NotFound Class = "NotFound"
	// Throttled means that the cluster (429) or our own token bucket demands a
	// slower rate.
	Throttled Class = "Throttled"
	// TLS means a TLS failure that has no class of its own.
	TLS Class = "TLS"
	// TLSUnknownAuthority means that the server's certificate is signed by an
	// unknown authority.
	TLSUnknownAuthority Class = "TLSUnknownAuthority"
	// TLSBadName means that the server's certificate was issued for another
	// name.
	TLSBadName Class = "TLSBadName"
	// TLSExpired means that the server's certificate has expired, or that our
	// clock is ahead.
	TLSExpired Class = "TLSExpired"
	// TLSNotYetValid means that the server's certificate is not valid yet, or
	// that our clock is behind.
	TLSNotYetValid Class = "TLSNotYetValid"
	// Refused means that our own policy forbids the request: dial policy,
	// redirect, body budget.
	Refused Class = "Refused"
	// Unreachable means that no connection could be made, or that it broke.
	Unreachable Class = "Unreachable"
	// Timeout means that the response did not arrive in time.
	Timeout Class = "Timeout"
	// NotKubernetes means that something other than a Kubernetes API answered.
	NotKubernetes Class = "NotKubernetes"
	// Server means that the server failed (5xx).
	Server Class = "Server"
	// Canceled means that the caller gave up.
	Canceled Class = "Canceled"
	// Cut means that our own side ended the request: Shut, CutStreams, Close,
	// or no access configured.
	Cut Class = "Cut"
	// BadConfig means that the rest.Config cannot be used.
	BadConfig Class = "BadConfig"
)

// Error describes which operation on which cluster failed, and how. Its text
// never contains a header, a URL query, a token or bytes chosen by the remote
// side; errors.Is and errors.As still find the cause.
type Error struct {
	// Cluster is Options.Cluster.
	Cluster string
	// Op is the method and path of the request, or the name of another
	// operation.
	Op string
	// Class is the kind of failure.
	Class Class
	// Err is the cause, with a text that is safe to show.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	return "cluster " + strconv.Quote(e.Cluster) + ": " + e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the operation timed out, for callers that know only
// net.Error.
func (e *Error) Timeout() bool { return e.Class == Timeout }

// Temporary returns false, for callers that know only net.Error: the decision
// to retry depends on Class.
func (e *Error) Temporary() bool { return false }

// redacted gives an error a text that is safe to show. It hides the error's own
// text, which may contain bytes that the remote side sent (a malformed status
// line, a GOAWAY's debug data). The chain stays searchable.
type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string        { return r.text }
func (r *redacted) Is(target error) bool { return errors.Is(r.err, target) }
func (r *redacted) As(target any) bool   { return errors.As(r.err, target) }

// trusted marks an error made on our side of the wire: its text may be shown.
type trusted struct{ err error }

func (t *trusted) Error() string { return t.err.Error() }
func (t *trusted) Unwrap() error { return t.err }

// codeError is an unsuccessful response. Apart from the code, its content is
// our own.
type codeError int

func (e codeError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("status %d %s", int(e), strings.ToLower(http.StatusText(int(e)))), " ")
}

// statusError is a codeError in the form that the functions of apimachinery's
// package errors recognize (IsUnauthorized, IsServiceUnavailable, ...): they go
// by the code if there is no reason.
type statusError struct{ codeError }

// Status implements k8s.io/apimachinery/pkg/api/errors.APIStatus.
func (e *statusError) Status() metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(e.codeError),
		Message: e.Error(),
	}
}

// answerOf returns the error for a response with the code. For codes that
// apimachinery associates with an object it is not one of apimachinery's
// errors: the response is to a request of our own, and a caller that reads an
// object while the cluster is unreachable must not mistake the error for the
// object's absence.
func answerOf(code int) error {
	switch code {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return codeError(code)
	}
	return &statusError{codeError(code)}
}
