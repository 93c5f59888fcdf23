// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package sanitize makes text from remote servers fit to be shown: bounded,
// printable, and limited to what a Kubernetes API reports in an API status.
//
// # Tests
//
// The leading test is TestTextIsBoundedAndPrints.
// TestSecretsAndForeignTextsAreInNoOutput (test/hostile) covers all that the
// library writes.
package sanitize

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxText is the maximum length of a text, in bytes.
	MaxText = 512
	// MaxRetryAfter is the longest time that a server can ask us to wait, in
	// seconds.
	MaxRetryAfter = 30
	// maxCauses is how many causes of a status are kept.
	maxCauses = 8
)

// Text truncates s to MaxText bytes and removes characters that are not
// printable.
func Text(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// Status returns a server's status as an error without hostile content:
// bounded, printable, and with the code of the response. retryAfter is the
// value of the response's header, in seconds.
func Status(status metav1.Status, code int, retryAfter int32) *apierrors.StatusError {
	out := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(code),
		Reason:  metav1.StatusReason(Text(string(status.Reason))),
		Message: Text(status.Message), //nolint:gosec // three digits
	}
	if d := status.Details; d != nil || retryAfter > 0 {
		out.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		if d != nil {
			out.Details.Name, out.Details.Group, out.Details.Kind = Text(d.Name), Text(d.Group), Text(d.Kind)
			out.Details.RetryAfterSeconds = max(retryAfter, min(max(d.RetryAfterSeconds, 0), MaxRetryAfter))
			for i := range min(len(d.Causes), maxCauses) {
				out.Details.Causes = append(out.Details.Causes, metav1.StatusCause{
					Type: metav1.CauseType(Text(string(d.Causes[i].Type))), Message: Text(d.Causes[i].Message),
					Field: Text(d.Causes[i].Field),
				})
			}
		}
	}

	return &apierrors.StatusError{ErrStatus: out}
}

// FromClient makes an error of client-go fit to be shown if it is a server's
// response. It removes bodies that are not an API status, which client-go
// quotes.
func FromClient(err error) error {
	failed, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	status := failed.ErrStatus
	if quotes(status) {
		status.Message = fmt.Sprintf("status %d, which no Kubernetes API explains", status.Code)
		status.Details = &metav1.StatusDetails{
			Name:              status.Details.Name,
			Group:             status.Details.Group,
			Kind:              status.Details.Kind,
			RetryAfterSeconds: status.Details.RetryAfterSeconds,
		}
	}

	return Status(status, int(status.Code), 0)
}

// quotes reports whether client-go created the status and put the body into it.
func quotes(status metav1.Status) bool {
	if status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}
