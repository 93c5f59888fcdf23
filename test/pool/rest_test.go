// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// served runs a handler and returns a source for it.
func served(t *testing.T, handler http.HandlerFunc) informerpool.Source {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	source, err := informerpool.FromConfig(&rest.Config{Host: server.URL + "/prefix", BearerToken: "canary-token",
		Timeout: time.Nanosecond})
	require.NoError(t, err)
	return source
}

func TestRequestsAreWhatAnAPIServerExpects(t *testing.T) {
	var got *http.Request
	source := served(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	})
	key := informerpool.Key{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}, Namespace: "ns"}
	body, err := source.Watch(t.Context(), informerpool.Request{Key: key, Options: metav1.ListOptions{
		LabelSelector:        "a in (b,c)",
		FieldSelector:        "metadata.name=x",
		ResourceVersion:      "7",
		AllowWatchBookmarks:  true,
		SendInitialEvents:    new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		TimeoutSeconds:       new(int64(99)),
	}})
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Equal(t, "/prefix/apis/apps/v1/namespaces/ns/deployments", got.URL.Path)
	require.Equal(t, url.Values{
		"watch":                {"true"},
		"labelSelector":        {"a in (b,c)"},
		"fieldSelector":        {"metadata.name=x"},
		"resourceVersion":      {"7"},
		"allowWatchBookmarks":  {"true"},
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
		"timeoutSeconds":       {"99"},
	}, got.URL.Query())
	require.Equal(t, "Bearer canary-token", got.Header.Get("Authorization"))
	require.Equal(t, "identity", got.Header.Get("Accept-Encoding"))

	key = informerpool.Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	body, err = source.List(t.Context(),
		informerpool.Request{Key: key, Options: metav1.ListOptions{Limit: 500, Continue: "next"}})
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Equal(t, "/prefix/api/v1/pods", got.URL.Path)
	require.Equal(t, url.Values{"limit": {"500"}, "continue": {"next"}}, got.URL.Query())
}

func TestAnswersThatAreNoListAreTypedErrorsWithoutTheBody(t *testing.T) {
	answer := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Retry-After", "1000000000")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	status := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden\u0000\u001b[31m` +
		strings.Repeat("x", 10000) +
		`","reason":"Forbidden","details":{"kind":"pods","retryAfterSeconds":999999},"code":403}`
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		check   func(error) bool
	}{
		"status":       {answer(403, "application/json", status), apierrors.IsForbidden},
		"throttled":    {answer(429, "text/plain", "canary-body"), apierrors.IsTooManyRequests},
		"unauthorized": {answer(401, "text/html", "<html>canary-body"), apierrors.IsUnauthorized},
		"unavailable":  {answer(503, "application/json", `{"canary-body":1}`), apierrors.IsServiceUnavailable},
		"login page": {answer(200, "text/html; charset=utf-8", "<html>canary-body"), func(err error) bool {
			return strings.Contains(err.Error(), "text/html")
		}},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/stolen", http.StatusTemporaryRedirect)
		}, func(err error) bool { return apierrors.ReasonForError(err) != "" || err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			source := served(t, c.handler)
			_, err := source.List(t.Context(), informerpool.Request{Key: pooltest.Everything})
			require.Error(t, err)
			require.True(t, c.check(err), "%v", err)
			require.NotContains(t, err.Error(), "canary")
			require.NotContains(t, err.Error(), "stolen")
			require.NotContains(t, err.Error(), "\x1b")
			require.Less(t, len(err.Error()), 1000)
			if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
				require.LessOrEqual(t, seconds, 30)
			}
		})
	}
}

func TestRequestOfAnotherEpochIsNotSent(t *testing.T) {
	sent := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent = true }))
	defer server.Close()
	source := informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
		return informerpool.Endpoint{Client: server.Client(), URL: server.URL, Epoch: "new"}, nil
	})
	epoch, err := source.Ready(t.Context(), types.NamespacedName{})
	require.NoError(t, err)
	require.EqualValues(t, "new", epoch)
	_, err = source.Watch(t.Context(), informerpool.Request{Key: pooltest.Everything, Epoch: "old"})
	require.ErrorIs(t, err, informerpool.ErrEpochChanged)
	require.False(t, sent)
}

func TestTransportErrorsDoNotQuoteTheURL(t *testing.T) {
	source, err := informerpool.FromConfig(&rest.Config{Host: "https://127.0.0.1:1/canary-path"})
	require.NoError(t, err)
	_, err = source.List(t.Context(), informerpool.Request{Key: pooltest.Everything})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "canary")
	_, isURL := errors.AsType[*url.Error](err)
	require.False(t, isURL)
}
