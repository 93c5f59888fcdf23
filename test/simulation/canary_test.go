// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// canaries are the beginnings of all planted secrets, in the clear and in the
// usual encodings; base64 has three.
var canaries = []string{"Canary", "Q2FuYXJ5", "DYW5hcnk", "NhbmFye", "43616e617279", "67 97 110 97 114 121",
	"0x43, 0x61, 0x6e, 0x61, 0x72, 0x79"}

// canary returns a secret that no output may show. It names the place where it
// is planted.
func canary(place string) string { return "Canary-" + place }

// look fails the run if an output of the library shows a secret.
func (w *world) look(where, text string) {
	for _, c := range canaries {
		if at := strings.Index(text, c); at >= 0 {
			w.fail("%s shows a secret: ...%q", where, text[max(0, at-100):min(len(text), at+60)])
			return
		}
	}
}

// logged receives the library's log.
func (w *world) logged(prefix, args string) {
	w.look("log", prefix+" "+args)
	if *storied {
		w.trace("log: %s %s", prefix, args)
	}
	if isLoud(args) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.loud = append(w.loud, w.clock()+" "+prefix+" "+args)
	}
}

// lookAt is look for an error, in every form in which it can be printed. It
// returns the error.
func (w *world) lookAt(where string, err error) error {
	if err != nil {
		w.look("error of "+where, fmt.Sprintf("%v\n%+v\n%#v", err, err, err))
	}
	return err
}

// expose checks everything that the library reports about itself: statuses, the
// debug page and metrics.
func (w *world) expose() {
	for _, st := range w.cc.Statuses() {
		raw, err := json.Marshal(st)
		w.must(err)
		w.look("status", fmt.Sprintf("%+v\n%#v\n%s", st, st, raw))
		_ = w.lookAt("status", st.LastError)
		watches, _ := w.cc.Cluster(st.Cluster).WatchStatuses()
		w.look("status of watches", fmt.Sprintf("%+v", watches))
		for _, query := range []string{"", "format=json&"} {
			page := httptest.NewRecorder()
			w.cc.DebugHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/?"+query, http.NoBody))
			w.look("debug page", page.Body.String())
		}
	}
	families, err := w.metrics.Gather()
	if err != nil {
		w.fail("metrics: %v", err)
	}
	var text bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		w.must(err)
	}
	w.look("metrics", text.String())
}

// base returns the path of a site's URL. One seed in three has one, and no
// output may show it.
func (w *world) base() string {
	if rand.New(rand.NewPCG(w.seed, 4)).IntN(3) > 0 {
		return ""
	}
	return "/" + canary("path")
}

// dial connects to the address of the site's access, and fails the run for any
// other.
func (s *site) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != s.host+":443" {
		s.w.fail("%s was dialled for %s", address, s.host)
	}
	return s.net.Dial(ctx, network, address)
}

// strayed is the dial function for connections whose access has none of its
// own: there must be none.
func (w *world) strayed(_ context.Context, _, address string) (net.Conn, error) {
	w.fail("%s was dialled, and no access names it", address)
	return nil, net.ErrClosed
}

// owned requires that the site has issued the token.
func (s *site) owned(token string) {
	if !strings.HasPrefix(token, canary("token")) || !strings.HasSuffix(token, "-of-"+s.host) {
		s.w.fail("%s was sent the credential of another: %q", s.host, token)
	}
}

// mark plants secrets in the header of a response, and removes the path of the
// site's URL from the request.
func (s *site) mark(w http.ResponseWriter, r *http.Request) *http.Request {
	w.Header().Set("Www-Authenticate", "Bearer realm="+canary("realm"))
	w.Header().Set("Audit-Id", canary("audit"))
	w.Header().Set("X-Served-By", canary("header"))
	path, below := strings.CutPrefix(r.URL.Path, s.base)
	if !below {
		s.w.fail("%s was asked for %s, outside of its URL's path", s.host, r.URL.Path)
	}
	if strings.Contains(r.URL.Path, canary("location")) {
		s.w.fail("%s was asked for %s: a redirect was followed", s.host, r.URL.Path)
	}
	if s.base == "" {
		return r
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = path, ""
	return out
}

// body is a response that does not come from a Kubernetes API.
func body(code int, media, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}
}

// hostileAnswers are full of secrets.
func hostileAnswers() []http.HandlerFunc {
	page, object := "<html>"+canary("page")+"</html>", `{"x":"`+canary("body")+`"}`
	const asJSON, asHTML = "application/json", "text/html"
	return []http.HandlerFunc{
		body(200, asHTML, page), body(401, asHTML, page), body(403, "text/plain", page), body(404, asHTML, page),
		body(500, asJSON, object), body(200, asJSON, object), body(429, asJSON, object), body(409, "text/plain", page),
		body(200, asJSON, `{"kind":"List","items":[{"data":{"x":"`+canary("half")),
		body(200, asJSON, `"`+canary("string")+`"`),
		body(502, "application/octet-stream", canary("binary")),
		body(500, asJSON, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"x":"`+canary("member")+
			`"}`),
		body(200, asJSON,
			`{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"},"data":{"x":"`+
				canary("data")+`"}}}`),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://elsewhere.sim.test/"+canary("location"))
			w.WriteHeader([]int{301, 302, 303, 307, 308}[len(r.URL.Path)%5])
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/"+canary("location"))
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	}
}

// hostile is a server, or a proxy in front of it, that answers as it likes:
// every request, or all but those that connecting needs.
func hostile(w *world, s *site) func() {
	answers := hostileAnswers()
	first, late := w.rng.IntN(len(answers)), w.chance(2)
	var n atomic.Int32
	turns := w.chance(2)
	s.put("hostile", func(r *fakeapi.Request) *fakeapi.Fault {
		if late && (r.Resource == "" || r.Resource == "namespaces") {
			return nil
		}
		i := first
		if turns {
			i += int(n.Add(1))
		}
		return &fakeapi.Fault{Answer: answers[i%len(answers)]}
	})
	w.interrupt(s)
	w.shortPause(20 * time.Second)
	w.create(s)
	w.expose()
	return func() { w.expose(); s.lift("hostile") }
}

// hostileFamilies are the faults of malicious servers.
func hostileFamilies() []*family {
	return []*family{
		// It may refuse everything, the identity query included, as too many
		// requests: audits find that watches show another cluster.
		{name: "hostile", hold: silence, delays: busyAudits, bound: 2 * time.Minute, strike: hostile,
			during: func(w *world, _ *site) { w.expose() }},
	}
}

// withCanary plants a secret in an object.
func withCanary(obj map[string]any, k *kind) {
	field := "spec"
	if k == configMaps {
		field = "data"
	}
	if m, ok := obj[field].(map[string]any); ok {
		m["secret"] = canary("content")
	}
}
