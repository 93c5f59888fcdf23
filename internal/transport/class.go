// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Classify returns the class of err. It knows this package's errors, API status
// errors, and those of net, crypto and context, at any depth. The class of nil
// is empty.
func Classify(err error) Class {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return classifyStatus(int(status.Status().Code))
	}
	for _, classify := range []func(error) Class{classifyOwn, classifyTLS, classifyNet} {
		if class := classify(err); class != "" {
			return class
		}
	}

	return Unknown
}

// classifyStatus returns the class of an HTTP status that is not a success.
func classifyStatus(code int) Class {
	switch {
	case code == http.StatusUnauthorized:
		return Unauthorized
	case code == http.StatusForbidden:
		return Forbidden
	case code == http.StatusNotFound, code == http.StatusGone:
		return NotFound
	case code == http.StatusTooManyRequests:
		return Throttled
	case isRedirect(code):
		return Refused
	case code >= http.StatusInternalServerError:
		return Server
	}

	return Unknown
}

func classifyOwn(err error) Class {
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, ErrBodyTooLarge):
		return Refused
	case errors.Is(err, ErrShut), errors.Is(err, ErrClosed), errors.Is(err, ErrNoAccess), errors.Is(err, ErrSuperseded):
		return Cut
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}

	return ""
}

func classifyTLS(err error) Class {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return TLSUnknownAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return TLSBadName
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return classifyCertificate(invalid)
	}
	if alert := remoteAlert(err); alert != "" {
		if certificateAlerts[alert] {
			return Unauthorized
		}
		return TLS
	}

	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return TLS
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return TLS
	}
	if text := err.Error(); strings.Contains(text, textPlainHTTP) || strings.Contains(text, "tls: ") {
		return TLS
	}
	return ""
}

// classifyCertificate distinguishes a clock that runs ahead from one that runs
// behind: x509 calls both Expired.
func classifyCertificate(invalid x509.CertificateInvalidError) Class {
	switch {
	case invalid.Reason != x509.Expired:
		return TLS
	case invalid.Cert != nil && time.Now().Before(invalid.Cert.NotBefore):
		return TLSNotYetValid
	}

	return TLSExpired
}

// remoteAlert returns the TLS alert that the server sent, or "". The text is
// crypto/tls's own; the alert is a number on the wire.
func remoteAlert(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// certificateAlerts are the alerts with which a server rejects our certificate.
var certificateAlerts = map[string]bool{
	"tls: bad certificate":               true,
	"tls: unsupported certificate":       true,
	"tls: revoked certificate":           true,
	"tls: expired certificate":           true,
	"tls: unknown certificate":           true,
	"tls: unknown certificate authority": true,
	"tls: certificate required":          true,
}

func classifyNet(err error) Class {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return Timeout
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return Unreachable
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return Unreachable
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return Unreachable
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.ErrClosedPipe) {
		return Unreachable
	}
	if lost(err.Error()) {
		return Unreachable
	}
	return ""
}
