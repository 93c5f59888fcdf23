// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// hostileAPI is an API server that answers some requests with given content.
type hostileAPI struct {
	net    *memnet.Listener
	api    *fakeapi.Server
	answer atomic.Pointer[answerFunc]
}

// answerFunc returns how to answer a request, or nil to have the server answer
// it.
type answerFunc func(*http.Request) http.HandlerFunc

func newHostileAPI(t *testing.T, identity string) *hostileAPI {
	t.Helper()
	h := &hostileAPI{net: memnet.Listen(), api: fakeapi.New(fakeapi.Options{Identity: identity})}
	server := &http.Server{Handler: h, ErrorLog: discardLog} //nolint:gosec // in memory
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(h.net) })
	t.Cleanup(func() {
		_ = server.Close()
		_ = h.net.Close()
		done.Wait()
	})
	return h
}

func (h *hostileAPI) config() *rest.Config {
	return &rest.Config{Host: "http://hostile.test", BearerToken: "t", Dial: h.net.Dial}
}

// set answers requests by f; with nil the server answers all of them.
func (h *hostileAPI) set(f answerFunc) { h.answer.Store(&f) }

// ServeHTTP implements http.Handler.
func (h *hostileAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := h.answer.Load(); f != nil && *f != nil {
		if answer := (*f)(r); answer != nil {
			answer(w, r)
			return
		}
	}
	h.api.ServeHTTP(w, r)
}

// at answers requests for a path, either watches or the others.
func at(path string, watch bool, body http.HandlerFunc) answerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if r.URL.Path == path && (r.URL.Query().Get("watch") == "true") == watch {
			return body
		}
		return nil
	}
}

// flood is a body: a beginning, an element that is repeated until it has n
// bytes, and an end. It is compressed if the request accepts that.
type flood struct {
	code           int
	begin, element string
	end            string
	bytes          int
	compress       bool
}

// ServeHTTP implements http.Handler. It writes for as long as the client reads.
func (f flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var out io.Writer = w
	if f.compress && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	}
	w.WriteHeader(max(f.code, http.StatusOK))
	if _, err := io.WriteString(out, f.begin); err != nil {
		return
	}
	block := []byte(strings.Repeat(f.element, max(1, (64<<10)/len(f.element))))
	for n := 0; n < f.bytes; n += len(block) {
		if _, err := out.Write(block[:min(len(block), (f.bytes-n+len(f.element)-1)/len(f.element)*len(f.element))]); err != nil {
			return
		}
	}
	_, _ = io.WriteString(out, f.end)
}

// heapPeak samples the heap while f runs, and returns by how much it grew at
// most. Garbage is collected early, so that it hardly counts.
func heapPeak(t *testing.T, f func()) int64 {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(40))
	debug.FreeOSMemory()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	before, peak := sample[0].Value.Uint64(), uint64(0)
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	f()
	close(stop)
	done.Wait()
	return int64(peak) - int64(before) //nolint:gosec // both are small
}

// hostileCluster runs a test in virtual time with a connected cluster, whose
// server is hostile, and a healthy one. It returns the peak of the heap.
func hostileCluster(t *testing.T, edit func(*clustercache.Options), test func(t *testing.T, h *hostileAPI, cc *clustercache.ClusterCache)) int64 {
	t.Helper()
	return heapPeak(t, func() {
		synctest.Test(t, func(t *testing.T) {
			h, b := newHostileAPI(t, "a"), newHostileAPI(t, "b")
			d := newDirectory()
			d.set(key("a"), h.config())
			d.set(key("b"), b.config())
			o := silent(d)
			if edit != nil {
				edit(&o)
			}
			cc := start(t, o)
			require.NoError(t, cc.Engage(key("a")))
			require.NoError(t, cc.Engage(key("b")))
			time.Sleep(time.Minute)
			require.True(t, status(t, cc).Connected, "%+v", status(t, cc))
			test(t, h, cc)
			h.set(nil)
		})
	})
}
