// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outcome is what a caller sees of a request.
type outcome struct {
	Status        string
	StatusCode    int
	Header        http.Header
	Trailer       http.Header
	ContentLength int64
	Uncompressed  bool
	Body          string
	Class         Class // of the error of the request or of its body
	InBody        bool
	TooLarge      bool
	Redirect      bool
	Protocol      int
	Encrypted     bool
}

// outcomeOf sends a request and reads its response.
func outcomeOf(t *testing.T, s *Transport, method, path string, header http.Header) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, nil)
	require.NoError(t, err)
	req.Header = header.Clone()
	resp, err := s.Client().Do(req)
	if err != nil {
		return failed(outcome{}, err)
	}
	defer func() { require.NoError(t, resp.Body.Close()) }()
	require.Equal(t, req.URL.Path, resp.Request.URL.Path)
	body, err := io.ReadAll(resp.Body)
	o := outcome{
		Status:        resp.Status,
		StatusCode:    resp.StatusCode,
		Header:        resp.Header,
		Trailer:       resp.Trailer,
		ContentLength: resp.ContentLength,
		Uncompressed:  resp.Uncompressed,
		Body:          string(body),
		Protocol:      resp.ProtoMajor,
		Encrypted:     resp.TLS != nil && len(resp.TLS.PeerCertificates) == 1,
	}
	o.Header.Del("Date")
	if err != nil {
		o = failed(o, err)
		o.InBody = true
	}
	if len(o.Trailer) == 0 {
		o.Trailer = nil
	}

	return o
}

func failed(o outcome, err error) outcome {
	o.Class = Classify(err)
	o.TooLarge, o.Redirect = errors.Is(err, ErrBodyTooLarge), errors.Is(err, ErrRefused)
	return o
}

// maxBody bounds the bodies of successful responses. Those of /large and beyond
// fill the window of a stream.
const maxBody = 1 << 20

var (
	large    = bytes.Repeat([]byte("large"), maxBody/8)
	tooLarge = bytes.Repeat([]byte("large"), maxBody/4)
)

// answers are responses of a server, by path.
var answers = map[string]http.HandlerFunc{
	"/plain":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
	"/nothing":  func(http.ResponseWriter, *http.Request) {},
	"/large":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) },
	"/toolarge": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tooLarge) },
	"/declared": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(tooLarge)))
		_, _ = w.Write(tooLarge)
	},
	"/gzip": func(w http.ResponseWriter, r *http.Request) {
		compressed(w, r, large, 0)
	},
	"/bomb": func(w http.ResponseWriter, r *http.Request) { compressed(w, r, make([]byte, 5*maxBody/4), 0) },
	"/truncated": func(w http.ResponseWriter, r *http.Request) {
		compressed(w, r, bytes.Repeat([]byte("large"), 1<<10), 12)
	},
	"/nogzip": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "this is not compressed at all")
	},
	"/emptygzip": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip") },
	"/GZIP": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "GZIP")
		compressed(w, r, []byte("upper"), 0)
	},
	"/deflate": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "deflate")
		_, _ = io.WriteString(w, "whatever")
	},
	"/short": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "12345")
		panic(http.ErrAbortHandler)
	},
	"/abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"/trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-After, X-Never")
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("X-After", "bye")
	},
	"/headers": func(w http.ResponseWriter, _ *http.Request) {
		for _, v := range []string{`299 - "deprecated"`, `299 - "removed"`} {
			w.Header().Add("Warning", v)
		}
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "1")
		w.Header().Set("Etag", `"abc"`)
		w.Header()["x-lower"] = []string{"", " spaces "}
	},
	"/early": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "early")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Link", "late")
		_, _ = io.WriteString(w, "{}")
	},
	"/heads": func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			w.Header().Add("X-Long", strings.Repeat("x", 90<<10))
		}
	},
	"/request": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Proto+"\n")
		_ = r.Header.Write(w)
	},
}

// compressions are compressed bodies, by path: the race detector makes
// compressing slow.
var compressions sync.Map

// compressed compresses a body if the client accepts that, and cuts off its end.
func compressed(w http.ResponseWriter, r *http.Request, body []byte, cut int) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(body)
		return
	}
	text, known := compressions.Load(r.URL.Path)
	if !known {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		text, _ = compressions.LoadOrStore(r.URL.Path, b.Bytes())
	}
	if w.Header().Get("Content-Encoding") == "" {
		w.Header().Set("Content-Encoding", "gzip")
	}
	_, _ = w.Write(text.([]byte)[:len(text.([]byte))-cut])
}

func answer(w http.ResponseWriter, r *http.Request) {
	if status, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil {
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", "100000")
		w.WriteHeader(status)
		if status != http.StatusNoContent && status != http.StatusNotModified {
			_, _ = io.WriteString(w, `{"kind":"Status"}`)
		}
		return
	}
	if known := answers[r.URL.Path]; known != nil {
		known(w, r)
		return
	}
	http.NotFound(w, r)
}

// TestOwnHTTP2AnswersAsNetHTTP: a caller cannot see which of the two clients
// sent a request, and neither can the server.
func TestOwnHTTP2AnswersAsNetHTTP(t *testing.T) {
	requests := map[string]http.Header{
		"none":      {},
		"identity":  {"Accept-Encoding": {"identity"}},
		"gzip":      {"Accept-Encoding": {"gzip"}},
		"range":     {"Range": {"bytes=0-3"}},
		"ours":      {"User-Agent": {"other"}, "Authorization": {"Bearer other"}, "Accept": {"a/b", "c/d"}},
		"no agent":  {"User-Agent": {""}},
		"hints":     {"Connection": {"keep-alive"}, "Content-Length": {"7"}},
		"odd":       {"x-lower": {"", " v "}, "Cookie": {"a=b", "c=d"}, "If-None-Match": {`"abc"`}},
		"bad name":  {"bad name": {"x"}},
		"bad value": {"X-Bad": {"a\nb"}},
		"upgrade":   {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
	}
	var paths []string
	for path := range answers {
		paths = append(paths, path)
	}
	for _, status := range []int{
		200, 201, 204, 299, 300, 301, 304, 307, 400, 401, 403, 404, 409, 410, 429, 500, 503, 599, 799,
	} {
		paths = append(paths, "/"+strconv.Itoa(status))
	}
	paths = append(paths, "/request?watch=false&labelSelector=a%3Db,c!%3D+d", "/request%2Fb/../c?", "/%zz"[:1]+"é")

	for _, compression := range []bool{true, false} {
		srv := serve(t, true, answer)
		cfg := srv.config("secret")
		cfg.DisableCompression = !compression
		opts := Options{QPS: -1, MaxUnaryBody: maxBody, MaxErrorBody: 1 << 10}
		ours := connect(t, opts, cfg)
		opts.NetHTTP = true
		theirs := connect(t, opts, cfg)
		for name, header := range requests {
			for _, path := range paths {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					want := outcomeOf(t, theirs, method, path, header)
					got := outcomeOf(t, ours, method, path, header)
					require.Equal(t, want, got, "%s %s with %s, compression %v", method, path, name, compression)
				}
			}
		}
	}
}
