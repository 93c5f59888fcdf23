// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// maxText bounds the text of one error, in bytes.
const maxText = 512

// brokenTexts are the fixed prefixes of errors about malformed responses and
// requests that are too large.
var brokenTexts = []string{
	"malformed response from server",
	"malformed chunked encoding",
	"http2: response header list larger than advertised limit",
	h2.ErrHeaderTooLarge.Error(),
	"net/http: server response headers exceeded",
	"net/http: server replied with more than declared Content-Length",
	"gzip: invalid header",
	"gzip: invalid checksum",
}

// redact returns err with a text that contains nothing from the remote side.
// The text is built from what is known about the error's type, never copied
// from err: net/http quotes malformed responses in its errors.
func redact(err error) error {
	switch err := err.(type) { //nolint:errorlint // only the outermost type says whether the text is ours
	case *redacted, *trusted:
		return err
	}
	return &redacted{text: clip(explain(err)), err: err}
}

// explain describes err in our own words or in constants of the standard
// library.
func explain(err error) string {
	if own, ok := errors.AsType[*trusted](err); ok {
		return own.Error()
	}
	for _, sentinel := range []error{ErrRefused, ErrBodyTooLarge, ErrShut, ErrClosed, ErrNoAccess, ErrSuperseded,
		context.Canceled, context.DeadlineExceeded} {
		switch {
		case !errors.Is(err, sentinel):
		case errors.Is(err, h2.ErrWaiting):
			return h2.ErrWaiting.Error() + ": " + sentinel.Error()
		default:
			return sentinel.Error()
		}
	}

	for _, explain := range []func(error) string{explainTLS, explainNet} {
		if text := explain(err); text != "" {
			return text
		}
	}
	if text := cmp.Or(lostText(err.Error()), contained(err.Error(), brokenTexts)); text != "" {
		return text
	}
	for { // the innermost type says the most about err without quoting remote text
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Sprintf("transport error of type %T", err)
		}
		err = inner
	}
}

func explainTLS(err error) string {
	switch classifyTLS(err) {
	case "":
		return ""
	case TLSUnknownAuthority:
		return "x509: server certificate signed by unknown authority"
	case TLSBadName:
		if bad, ok := errors.AsType[x509.HostnameError](err); ok {
			return "x509: server certificate is not valid for " + strconv.Quote(bad.Host)
		}
	case TLSExpired, TLSNotYetValid:
		if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Cert != nil {
			return fmt.Sprintf("x509: server certificate is valid from %s to %s, now it is %s",
				bad.Cert.NotBefore.UTC().Format(time.RFC3339), bad.Cert.NotAfter.UTC().Format(time.RFC3339),
				time.Now().UTC().Format(time.RFC3339))
		}
	}

	if alert := remoteAlert(err); alert != "" {
		return "remote error: " + alert
	}
	if strings.Contains(err.Error(), textPlainHTTP) {
		return textPlainHTTP
	}
	if bad, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "tls: " + bad.Msg
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Sprintf("x509: server certificate is invalid (reason %d)", bad.Reason)
	}
	return "TLS handshake failed"
}

func explainNet(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Error()
	}
	reason := explainReason(err)
	if reason == "" {
		return ""
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		where := op.Op + " " + op.Net
		if op.Addr != nil {
			where += " " + op.Addr.String()
		}
		return where + ": " + reason
	}

	return reason
}

func explainReason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	switch {
	case errors.Is(err, net.ErrClosed):
		return net.ErrClosed.Error()
	case errors.Is(err, io.ErrClosedPipe):
		return io.ErrClosedPipe.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke: unexpected EOF"
	case errors.Is(err, io.EOF):
		return "the connection broke: EOF"
	}

	if strings.Contains(err.Error(), "TLS handshake timeout") {
		return "TLS handshake timeout"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "i/o timeout"
	}
	return ""
}

// clip truncates text to maxText bytes and makes control characters visible.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
