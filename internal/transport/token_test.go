// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked sends a plain request and a watch, and returns the credentials of each
// as the server saw them.
func asked(t *testing.T, s *Transport) (unary, stream string) {
	t.Helper()
	read := func(path string) string {
		resp, err := get(t.Context(), s, path)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text := make([]byte, 100)
		n, err := resp.Body.Read(text)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
		}
		return strings.TrimSpace(string(text[:n]))
	}
	return read("/api/v1/pods"), read("/api/v1/pods?watch=true")
}

// tellAuthorization responds with the credentials of the request, and keeps a
// watch open.
func tellAuthorization(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Header.Get("Authorization")+"\n")
	if isWatch(r) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// TestTokenFileIsReadAgain: kubelet rotates a Pod's token. A minute later every
// new request and watch must carry the new one.
func TestTokenFileIsReadAgain(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		file := filepath.Join(t.TempDir(), "token")
		write := func(token string) { require.NoError(t, os.WriteFile(file, []byte(token), 0o600)) }
		write("one")
		n := newMemnet(t, http2, tellAuthorization)
		config := n.config()
		config.BearerToken, config.BearerTokenFile = "", file
		s := connect(t, Options{Dial: n.dial}, config)
		for _, token := range []string{"one", "two", "three"} {
			write(token)
			time.Sleep(61 * time.Second)
			unary, stream := asked(t, s)
			require.Equal(t, "Bearer "+token, unary)
			require.Equal(t, "Bearer "+token, stream)
		}
	})
}

// TestRejectedTokenFileIsReadAtOnce: a token that is revoked before it expires
// costs one request.
func TestRejectedTokenFileIsReadAtOnce(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
		var good atomic.Value
		good.Store("Bearer one")
		n := newMemnet(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != good.Load() {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			tellAuthorization(w, r)
		})
		config := n.config()
		config.BearerToken, config.BearerTokenFile = "", file
		s := connect(t, Options{Dial: n.dial}, config)
		asked(t, s)
		for i, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true"} {
			time.Sleep(time.Second)
			token := "new-" + strconv.Itoa(i)
			require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
			good.Store("Bearer " + token)
			resp, err := get(t.Context(), s, path)
			require.NoError(t, err)
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			time.Sleep(time.Second)
			unary, stream := asked(t, s)
			require.Equal(t, "Bearer "+token, unary)
			require.Equal(t, "Bearer "+token, stream)
		}
	})
}

// TestWrappedTransportGivesEachRequestItsToken: a config may bring its own
// token source, as those of cloud providers do.
func TestWrappedTransportGivesEachRequestItsToken(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, tellAuthorization)
		var tokens atomic.Int64
		config := n.config()
		config.BearerToken = ""
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set("Authorization", "Bearer "+strconv.FormatInt(tokens.Add(1), 10))
				return rt.RoundTrip(req)
			})
		})
		s := connect(t, Options{Dial: n.dial}, config)
		for i := range 3 {
			unary, stream := asked(t, s)
			require.Equal(t, "Bearer "+strconv.Itoa(2*i+1), unary)
			require.Equal(t, "Bearer "+strconv.Itoa(2*i+2), stream)
		}
	})
}
