// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"compress/gzip"
	"io"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
)

// At answers requests for a path, either watches or the others.
func At(path string, watch bool, body http.HandlerFunc) AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if r.URL.Path == path && (r.URL.Query().Get("watch") == "true") == watch {
			return body
		}
		return nil
	}
}

// Flood is a body: a beginning, an element that is repeated until it has n
// bytes, and an end. It is compressed if the request accepts that.
type Flood struct {
	Code           int
	Begin, Element string
	End            string
	Bytes          int
	Compress       bool
}

// ServeHTTP implements http.Handler. It writes for as long as the client reads.
func (f Flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var out io.Writer = w
	if f.Compress && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	}
	w.WriteHeader(max(f.Code, http.StatusOK))
	if _, err := io.WriteString(out, f.Begin); err != nil {
		return
	}
	block := []byte(strings.Repeat(f.Element, max(1, (64<<10)/len(f.Element))))
	for n := 0; n < f.Bytes; n += len(block) {
		if _, err := out.Write(block[:min(len(block),
			(f.Bytes-n+len(f.Element)-1)/len(f.Element)*len(f.Element))]); err != nil {
			return
		}
	}
	_, _ = io.WriteString(out, f.End)
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

// HostileCluster runs a test in virtual time with a connected cluster, whose
// server is hostile, and a healthy one. It returns the peak of the heap.
func HostileCluster(t *testing.T, edit func(*clustercache.Options),
	test func(t *testing.T, h *API, cc *clustercache.ClusterCache)) int64 {
	t.Helper()
	return heapPeak(t, func() {
		synctest.Test(t, func(t *testing.T) {
			h, b := NewAPI(t, "a"), NewAPI(t, "b")
			d := NewDirectory()
			d.Set(Key("a"), h.Config())
			d.Set(Key("b"), b.Config())
			o := Silent(d)
			if edit != nil {
				edit(&o)
			}
			cc := Start(t, o)
			require.NoError(t, cc.Cluster(Key("a")).Engage())
			require.NoError(t, cc.Cluster(Key("b")).Engage())
			time.Sleep(time.Minute)
			require.True(t, Status(t, cc).Connected, "%+v", Status(t, cc))
			test(t, h, cc)
			h.Set(nil)
		})
	})
}

// Nothings are successful answers without meaningful content.
func Nothings() map[string]http.HandlerFunc {
	body := func(media, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			_, _ = w.Write([]byte(text))
		}
	}
	return map[string]http.HandlerFunc{
		"an empty body":   body("application/json", ""),
		"an empty object": body("application/json", "{}"),
		"null":            body("application/json", "null"),
		"a text":          body("text/plain", "ok"),
		"no content":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"another namespace": body("application/json",
			`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default","uid":"a"}}`),
		"an object of a kind": body("application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Success","metadata":{"uid":"a"}}`),
	}
}
