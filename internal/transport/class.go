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
	"regexp"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
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

// isRedirect reports whether a client would follow a redirect with this status.
// 304 is not one: it answers a conditional request.
func isRedirect(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest && status != http.StatusNotModified
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
	if lostText(err.Error()) != "" {
		return Unreachable
	}
	return ""
}

const textPlainHTTP = "http: server gave HTTP response to HTTPS client"

// lostTexts are the fixed prefixes of net/http's errors about a connection that
// broke. These errors have no types to test for, and the rest of their text may
// come from the remote side (a GOAWAY's debug data).
var lostTexts = []string{
	h2.ErrConnectionLost.Error() + ": " + h2.ErrNoStreams.Error(),
	"http2: client connection lost", // client-go retries on exactly this text
	"http2: server sent GOAWAY and closed the connection",
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: client connection force closed via ClientConn.Close", // after a failed write
	"http2: client conn could not be established",
	"http2: client conn is closed",
	"http2: client conn not usable",
	"http: CloseIdleConnections called",
	"http: server closed idle connection",
	"http2: Transport: cannot retry err", // because the body cannot be sent again
	"net/http: cannot rewind body after connection loss",
	"http: can't write HTTP request on broken connection",
	"net/http: HTTP/1.x transport connection broken",
	"connection reset by peer",
	"use of closed network connection",
	h2.ErrUnprocessed.Error(), // several connections in turn: it is retried before
}

// streamError matches the fixed part of an HTTP/2 stream error. The cause may
// follow, in arbitrary words.
var streamError = regexp.MustCompile(`stream error: stream ID [0-9]+; [A-Z_0-9]+`)

// lostText returns the part of text that tells of a connection or stream that
// broke, or "".
func lostText(text string) string {
	if known := contained(text, lostTexts); known != "" {
		return known
	}
	return streamError.FindString(text)
}

func contained(text string, known []string) string {
	for _, fixed := range known {
		if strings.Contains(text, fixed) {
			return fixed
		}
	}
	return ""
}
