// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/certs"
)

// answering returns a credential plugin that answers with what is in a file.
func answering(file string) *api.ExecConfig {
	return &api.ExecConfig{
		APIVersion: clientauthv1.SchemeGroupVersion.String(), InteractiveMode: api.NeverExecInteractiveMode,
		Command: "cat", Args: []string{file},
	}
}

// credential writes a client certificate as a plugin returns it.
func credential(t *testing.T, file, name string) {
	t.Helper()
	pair := certs.SelfSign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
	})
	answer, err := json.Marshal(clientauthv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{Kind: "ExecCredential", APIVersion: clientauthv1.SchemeGroupVersion.String()},
		Status: &clientauthv1.ExecCredentialStatus{
			ClientCertificateData: string(pair.Cert),
			ClientKeyData:         string(pair.Key),
		},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, answer, 0o600))
}

// TestHazardPluginsNewCertificateIsNotPresented: a certificate is that of a
// connection, so a new one needs new connections. Watches go on over the old
// ones.
func TestHazardPluginsNewCertificateIsNotPresented(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		var rejected atomic.Value
		rejected.Store("nobody")
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := r.TLS.PeerCertificates[0].Subject.CommonName
			if who == rejected.Load() {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, who)
			if isWatch(r) {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		}))
		srv.EnableHTTP2 = http2
		srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert} //nolint:gosec // of a test
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.StartTLS()
		t.Cleanup(srv.Close)

		file := filepath.Join(t.TempDir(), "answer")
		credential(t, file, "one")
		s := connect(t, Options{}, &rest.Config{
			Host: srv.URL, ExecProvider: answering(file), TLSClientConfig: rest.TLSClientConfig{CAData: caOf(srv)},
		})
		_, who, err := fetch(t.Context(), s, "/api")
		require.NoError(t, err)
		require.Equal(t, "one", who)
		resp, err := get(t.Context(), s, "/api?watch=true")
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		_, err = io.ReadFull(resp.Body, make([]byte, len("one")))
		require.NoError(t, err)

		credential(t, file, "two")
		_, who, err = fetch(t.Context(), s, "/api")
		require.NoError(t, err)
		require.Equal(t, "one", who, "as long as it is not rejected")
		rejected.Store("one")
		status, _, err := fetch(t.Context(), s, "/api")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		for range 3 {
			_, who, err = fetch(t.Context(), s, "/api")
			require.NoError(t, err)
			require.Equal(t, "two", who)
		}

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = resp.Body.Read(make([]byte, 1))
		}()
		select {
		case <-ended:
			require.Fail(t, "the watch has ended")
		default:
		}
		s.Close()
		<-ended
	})
}

// TestHazardRoundTripperOfTheConfigIsDeaf: requests end in time, few calls are
// left behind, Close does not wait for them, and when they return, requests get
// through.
func TestHazardRoundTripperOfTheConfigIsDeaf(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, func(http.ResponseWriter, *http.Request) {})
		var calls atomic.Int32
		returns := make(chan struct{})
		config := n.config()
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				calls.Add(1)
				<-returns
				return rt.RoundTrip(req)
			})
		})
		s := connect(t, Options{Dial: n.dial}, config)
		for range 3 * maxDeaf {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			_, _, err := fetch(ctx, s, "/api")
			cancel()
			requireClass(t, Timeout, err)
			deaf := &callback.DeafError{}
			require.ErrorAs(t, err, &deaf)
			require.ErrorContains(t, err, "WrapTransport does not heed its context")
			require.Less(t, time.Since(began), 2*time.Second)
		}
		require.EqualValues(t, maxDeaf, calls.Load())

		close(returns)
		require.Eventually(t, func() bool { return s.cluster.deaf.Load() == 0 }, time.Second, time.Millisecond)
		_, _, err := fetch(t.Context(), s, "/api")
		require.NoError(t, err)
	})
}
