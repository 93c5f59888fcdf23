// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

var errGiveUp = errors.New("three probes failed")

// proveOnce sends a GET for path with a candidate, which it closes afterwards.
func proveOnce(t *testing.T, s *Transport, cfg *rest.Config, path string) (Proof, error) {
	t.Helper()
	c, err := s.Candidate(cfg, "")
	if err != nil {
		return Proof{}, err
	}
	defer c.Close()
	return c.Get(t.Context(), path)
}

func TestRequestReachesServerWithTokenAndPrefix(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		srv := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Header.Get("Authorization")+" "+r.Header.Get("User-Agent")+
				" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery)
		})
		cfg := srv.config("secret")
		cfg.Host += "/k8s/clusters/c-1/"
		s := connect(t, Options{}, cfg)
		status, body, err := fetch(t.Context(), s, "/api/v1/a%2Fb?limit=1")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "Bearer secret fleetcache /k8s/clusters/c-1/api/v1/a%2Fb?limit=1", body)
		require.False(t, s.LastLife().IsZero())
	})
}

func TestConcurrentFirstRequestsMakeOneConnection(t *testing.T) {
	const requests = 100
	srv := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	s := connect(t, Options{QPS: -1}, srv.config("secret"))
	start := make(chan struct{})
	errs := make(chan error, requests)
	for range requests {
		go func() {
			<-start
			_, _, err := fetch(t.Context(), s, "/version")
			errs <- err
		}()
	}
	close(start)
	for range requests {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, 1, srv.conns.Load())
}

func TestManyStreamsNeedNoMoreConnectionsThanTheirNumber(t *testing.T) {
	const streams = 250
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, nil) })
	s := connect(t, Options{}, srv.config("secret"))
	var wg sync.WaitGroup
	var failed atomic.Int32
	for range streams {
		wg.Go(func() {
			resp, err := get(t.Context(), s, "/api/v1/pods?watch=1")
			if err != nil {
				failed.Add(1)
				return
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			if _, err := io.ReadFull(resp.Body, make([]byte, len(line))); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, failed.Load())
	require.Equal(t, streams, s.Streams())
	require.EqualValues(t, 3, srv.conns.Load())
}

func TestTokenRotationKeepsRunningStream(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		more := make(chan struct{})
		srv := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("watch") {
				streamLines(w, r, more)
				return
			}
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		})
		s := connect(t, Options{}, srv.config("old"))
		stream := watch(t, s)
		require.NoError(t, s.Swap(srv.config("new"), "second"))
		require.Equal(t, "second", s.Revision())
		_, body, err := fetch(t.Context(), s, "/api/v1/pods")
		require.NoError(t, err)
		require.Equal(t, "Bearer new", body)
		more <- struct{}{}
		expectLine(t, stream)
		require.Equal(t, 1, s.Streams())

		s.CutStreams("second")
		_, err = stream.Read(make([]byte, 1))
		requireClass(t, Cut, err)
		require.ErrorIs(t, err, ErrSuperseded)
		require.Zero(t, s.Streams())
	})
}

// TestCutStreamsLetsOtherRequestsFinish: a request that reads one object while
// the endpoint moves gets that object.
func TestCutStreamsLetsOtherRequestsFinish(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		asked, reply := make(chan struct{}), make(chan struct{})
		srv := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("watch") {
				streamLines(w, r, nil)
				return
			}
			close(asked)
			<-reply
			_, _ = io.WriteString(w, "at last")
		})
		release := sync.OnceFunc(func() { close(reply) })
		t.Cleanup(release)
		s := connect(t, Options{}, srv.config("old"))
		stream := watch(t, s)
		ended := make(chan error, 1)
		go func() { ended <- second(io.Copy(io.Discard, stream)) }()
		got := make(chan string, 1)
		go func() {
			_, body, err := fetch(t.Context(), s, "/version")
			got <- fmt.Sprint(body, err)
		}()
		<-asked
		require.NoError(t, s.Swap(srv.config("new"), "second"))
		s.CutStreams("second")
		require.ErrorIs(t, <-ended, ErrSuperseded)
		release()
		require.Equal(t, "at last<nil>", <-got)
		require.Equal(t, 1, generations(s))
	})
}

func second[T any](_ T, err error) error { return err }

func TestEndpointAndAuthorityCanBeReplacedUnderAStream(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		more := make(chan struct{})
		before := newMemnet(t, http2, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, more) })
		after := serve(t, http2, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "new home") })
		s := connect(t, Options{}, dialling(before))
		stream := watch(t, s)
		require.NoError(t, s.Swap(after.config("secret"), "second"))
		_, body, err := fetch(t.Context(), s, "/version")
		require.NoError(t, err)
		require.Equal(t, "new home", body)
		more <- struct{}{}
		expectLine(t, stream)

		require.NoError(t, s.Swap(dialling(before), "third"))
		s.CutStreams("first")
		more <- struct{}{}
		expectLine(t, stream)
	})
}

func dialling(n *memnet) *rest.Config {
	cfg := n.config()
	cfg.Dial = n.dial
	return cfg
}

func TestRedirectIsRefusedAndTokenStaysHome(t *testing.T) {
	var visited atomic.Int32
	victim := serve(t, true, func(http.ResponseWriter, *http.Request) { visited.Add(1) })
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, victim.URL+"/canary", http.StatusTemporaryRedirect)
	})
	s := connect(t, Options{}, srv.config("canary-token"))
	_, _, err := fetch(t.Context(), s, "/api/v1/pods")
	requireClass(t, Refused, err)
	require.ErrorIs(t, err, ErrRefused)
	require.NotContains(t, err.Error(), "canary")
	_, err = s.Probe(t.Context(), "/readyz")
	requireClass(t, Refused, err)
	require.Zero(t, visited.Load())
}

func TestUnauthorizedIsToldOncePerGeneration(t *testing.T) {
	srv := serve(t, true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	rejected := make(chan string, 10)
	s := connect(t, Options{Unauthorized: func(revision string) { rejected <- revision }}, srv.config("old"))
	for range 3 {
		status, _, err := fetch(t.Context(), s, "/api/v1/pods")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.Len(t, rejected, 1)
	_, err := proveOnce(t, s, srv.config("new"), "/version")
	requireClass(t, Unauthorized, err)
	require.Len(t, rejected, 1, "a candidate is not in use")
	require.NoError(t, s.Swap(srv.config("new"), "second"))
	_, _, err = fetch(t.Context(), s, "/api/v1/pods?watch=1")
	require.NoError(t, err)
	require.Equal(t, "first", <-rejected)
	require.Equal(t, "second", <-rejected)
	require.True(t, s.LastLife().IsZero(), "a rejection proves no life")
}

func TestShutCutsAndOpenLetsThroughAgain(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		srv := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("watch") {
				streamLines(w, r, nil)
			}
		})
		s := connect(t, Options{}, srv.config("secret"))
		stream := watch(t, s)
		s.Shut(errGiveUp)
		_, err := stream.Read(make([]byte, 1))
		requireClass(t, Cut, err)
		require.ErrorIs(t, err, errGiveUp)
		_, _, err = fetch(t.Context(), s, "/version")
		requireClass(t, Cut, err)
		require.ErrorIs(t, err, ErrShut)
		require.ErrorIs(t, err, errGiveUp)
		require.True(t, strings.HasSuffix(err.Error(), errGiveUp.Error()), err.Error())
		proof, err := proveOnce(t, s, srv.config("secret"), "/version")
		require.NoError(t, err, "proving works while shut")
		require.Equal(t, http.StatusOK, proof.Status)

		s.Open()
		_, _, err = fetch(t.Context(), s, "/version")
		require.NoError(t, err)
	})
}

func TestCandidateKeepsItsConnectionWhenUsed(t *testing.T) {
	srv := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	s := newTransport(t, Options{})
	c, err := s.Candidate(srv.config("secret"), "r1")
	require.NoError(t, err)
	_, _, err = fetch(t.Context(), s, "/version")
	requireClass(t, Cut, err)
	require.ErrorIs(t, err, ErrNoAccess)
	_, err = c.Get(t.Context(), "/version")
	require.NoError(t, err)
	require.True(t, s.LastLife().IsZero(), "a candidate may be another cluster")
	require.NoError(t, c.Use())
	c.Close()
	require.False(t, s.LastLife().IsZero(), "what is used is this cluster")
	_, _, err = fetch(t.Context(), s, "/version")
	require.NoError(t, err)
	require.Equal(t, "r1", s.Revision())
	require.EqualValues(t, 1, srv.conns.Load())
}

func TestCloseEndsEverything(t *testing.T) {
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, nil) })
	s := connect(t, Options{}, srv.config("secret"))
	stream := watch(t, s)
	c, err := s.Candidate(srv.config("secret"), "r2")
	require.NoError(t, err)
	s.Close()
	s.Close()
	_, err = stream.Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = fetch(t.Context(), s, "/version")
	require.ErrorIs(t, err, ErrClosed)
	require.Error(t, c.Use())
	_, err = s.Candidate(srv.config("secret"), "r3")
	require.ErrorIs(t, err, ErrClosed)
	s.Open()
	_, _, err = fetch(t.Context(), s, "/version")
	requireClass(t, Cut, err)
	require.Zero(t, generations(s))
}

// TestErrorsOfTheOwnHTTP2AreNamed: those that say that a connection broke begin
// with the text that client-go recognizes as worth a retry.
func TestErrorsOfTheOwnHTTP2AreNamed(t *testing.T) {
	away := &h2.GoAwayError{LastStreamID: 3, Code: http2.ErrCodeNo}
	for _, test := range []struct {
		err   error
		class Class
		text  string
	}{
		{fmt.Errorf("%w: %w", h2.ErrConnectionLost, h2.ErrNoStreams), Unreachable,
			"http2: client connection lost: the server allows no streams"},
		{fmt.Errorf("%w: %w", away, h2.ErrConnectionLost), Unreachable, "http2: client connection lost"},
		{fmt.Errorf("%w: %w", h2.ErrUnprocessed, away), Unreachable, "h2: the server did not process the request"},
		{fmt.Errorf("%w: %w", h2.ErrUnprocessed, h2.ErrConnectionLost), Unreachable, "http2: client connection lost"},
		{&h2.StreamError{StreamID: 5, Code: http2.ErrCodeRefusedStream}, Unreachable,
			"stream error: stream ID 5; REFUSED_STREAM"},
		{fmt.Errorf("%w: the server accepts 10 bytes", h2.ErrHeaderTooLarge), Unknown, "h2: headers too large"},
	} {
		require.Equal(t, test.class, Classify(test.err), "%v", test.err)
		require.EqualError(t, redact(test.err), test.text)
	}
}
