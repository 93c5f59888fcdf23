// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sanitize_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/sanitize"
)

func TestTextIsBoundedAndPrints(t *testing.T) {
	for _, s := range []string{"plain", strings.Repeat("é", 1000), "a\nb\x1b[31m\u202e\x00", "\xff\xfe", ""} {
		got := sanitize.Text(s)
		require.LessOrEqual(t, len(got), sanitize.MaxText+len("…"))
		require.False(t, strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", got)
	}
	require.Equal(t, "plain", sanitize.Text("plain"))
}

func TestBodyThatClientGoQuotesIsLeftOut(t *testing.T) {
	gr := schema.GroupResource{Resource: "configmaps"}
	for code, is := range map[int]func(error) bool{
		401: apierrors.IsUnauthorized, 403: apierrors.IsForbidden, 404: apierrors.IsNotFound, 409: apierrors.IsConflict,
		429: apierrors.IsTooManyRequests, 500: apierrors.IsInternalError, 503: apierrors.IsServiceUnavailable,
	} {
		quoting := fmt.Errorf("wrapped: %w",
			apierrors.NewGenericServerResponse(code, "get", gr, "one", "<html>canary</html>", 5, true))
		err := sanitize.FromClient(quoting)
		require.True(t, is(err), "%d: %v", code, err)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "canary")
		status, ok := errors.AsType[*apierrors.StatusError](err)
		require.True(t, ok)
		require.NotContains(t, fmt.Sprint(status.ErrStatus), "canary")
		require.Equal(t, "one", status.ErrStatus.Details.Name)
		require.EqualValues(t, 5, status.ErrStatus.Details.RetryAfterSeconds)
	}
}

func TestStatusOfAServerIsKeptInBounds(t *testing.T) {
	long := strings.Repeat("x\n", 10000)
	err := sanitize.FromClient(&apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 422, Reason: metav1.StatusReasonInvalid, Message: long,
		Details: &metav1.StatusDetails{Name: long, RetryAfterSeconds: 1 << 30,
			Causes: make([]metav1.StatusCause, 1000)},
	}})
	require.True(t, apierrors.IsInvalid(err))
	status, _ := errors.AsType[*apierrors.StatusError](err)
	require.LessOrEqual(t, len(fmt.Sprint(status.ErrStatus)), 4000)
	require.EqualValues(t, sanitize.MaxRetryAfter, status.ErrStatus.Details.RetryAfterSeconds)
	require.Len(t, status.ErrStatus.Details.Causes, 8)
	other := errors.New("of our own")
	require.Same(t, other, sanitize.FromClient(other))
	require.NoError(t, sanitize.FromClient(nil))
}
