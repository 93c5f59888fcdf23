// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// hostile is a server that answers every request with secrets, and records the
// credentials that it receives.
type hostile struct {
	*httptest.Server
	mu   sync.Mutex
	sent []string // values of Authorization
}

func newHostile(t *testing.T, answer http.HandlerFunc) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.sent = append(h.sent, r.Header.Get("Authorization"))
		h.mu.Unlock()
		answer(w, r)
	}))
	h.Config.ErrorLog = fleettest.DiscardLog
	h.StartTLS()
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

// kubeconfigFor is a kubeconfig with one context; server, ca and user are
// written as they are.
func kubeconfigFor(server string, ca []byte, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {%s}}]
`, server, base64.StdEncoding.EncodeToString(ca), user)
}

// ordinary lets a hostile server behave like an API server up to the point
// where it is recognized.
func ordinary(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/readyz", "/version":
		_, _ = w.Write([]byte(`{"gitVersion": "v1.36.0"}`))
	case "/api/v1/namespaces/kube-system":
		_, _ = w.Write([]byte(
			`{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": "u"}}`))
	case "/api":
		_, _ = w.Write([]byte(`{"kind": "APIVersions", "versions": ["v1"]}`))
	case "/apis":
		_, _ = w.Write([]byte(`{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`))
	case "/api/v1":
		_, _ = w.Write([]byte(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [` +
			`{"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", ` +
			`"verbs": ["get", "list", "watch"]}]}`))
	default:
		return false
	}
	return true
}

// hostileAnswers are the answers of hostile servers, by a name; each contains
// secrets. Those that begin with "late" behave until their objects are
// requested.
func hostileAnswers(s *secrets, victim string) map[string]http.HandlerFunc {
	body := func(status int, contentType string) func(place string) http.HandlerFunc {
		return func(place string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", contentType)
				w.Header().Set("Www-Authenticate", "Bearer realm="+s.plant(place+" header"))
				w.Header().Set("Warning", `299 - "`+s.plant(place+" warning")+`"`)
				w.Header().Set("Retry-After", "1000000000")
				w.Header().Set("Audit-Id", s.plant(place+" audit"))
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, "<html>%s</html>", s.plant(place+" body"))
			}
		}
	}
	ugly := strings.Repeat(uglyMessage, 1000) // names of kinds and fields may be shown, in part
	out := map[string]http.HandlerFunc{}
	for name, make := range map[string]func(string) http.HandlerFunc{
		"html-200": body(200, "text/html"), "html-401": body(401, "text/html"), "html-403": body(403, "text/html"),
		"html-404": body(404, "text/html"), "html-500": body(500, "text/html"), "html-503": body(503, "text/html"),
		"json-200": body(200, "application/json"), "json-401": body(401, "application/json"),
		"json-429": body(429, "application/json"),
		"json-500": body(500, "application/json"), "text-409": body(409, "text/plain"),
		"binary": body(200, "application/octet-stream"),
	} {
		out[name], out["late-"+name] = make(name), make("late-"+name)
	}
	out["redirect"] = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, victim+"/"+s.plant("redirect location"), http.StatusTemporaryRedirect)
	}
	out["late-redirect"] = out["redirect"]
	out["late-kind"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w,
			`{"kind": %q, "apiVersion": %q, "metadata": {"name": %q, "resourceVersion": %q}, `+
				`"items": [{"metadata": {"name": %q}}]}`,
			ugly, ugly+"/v1", s.plant("name"), ugly, ugly)
	}
	out["late-frame"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"type": %q, "object": {"kind": %q, "data": {"x": %q}}}`+"\n", ugly, ugly,
			s.plant("frame data"))
	}
	out["raw"] = func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n%s\r\n\r\n", s.plant("status line"), s.plant("header line"))
			_ = conn.Close()
		}
	}
	out["late-raw"] = out["raw"]
	return out
}

// uglyMessage is a message of an API status: it may be shown, in part and
// without the characters that forge terminal output or log lines.
const uglyMessage = "shown\n2026-01-01 INFO forged line \x1b[31mred\u202egnirts\x00"

func status500(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 200,
		Reason: metav1.StatusReason(strings.Repeat("reason\n", 20000)), Message: strings.Repeat(uglyMessage, 20000),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: strings.Repeat(uglyMessage, 20000)}}},
	})
}

// stage is a hub whose Secrets lead to hostile servers, or are themselves
// hostile.
type stage struct {
	secrets *secrets
	out     *outputs
	hub     *clustercachetest.Cluster
	servers map[string]*hostile
	tokens  map[string]string
	names   []string

	mu     sync.Mutex
	dialed map[string]bool
}

func (s *stage) describe(name string, kubeconfig []byte) {
	s.names = append(s.names, name)
	s.hub.Store(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}, Data: map[string][]byte{
		"kubeconfig": kubeconfig, "other": []byte(s.secrets.plant("other key of " + name)),
	}})
}

// dial records the address that is dialed, and dials it if the policy permits.
func (s *stage) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (resolver.DialPolicy{AllowLoopback: true}).Dialer()(ctx, network, address)
	if err == nil {
		s.mu.Lock()
		s.dialed[conn.RemoteAddr().String()] = true
		s.mu.Unlock()
	}
	return conn, err
}

func newStage(t *testing.T) (s *stage, victim *hostile) {
	t.Helper()
	s = &stage{
		secrets: &secrets{planted: map[string]string{}}, out: &outputs{errs: map[string]string{}},
		servers: map[string]*hostile{}, tokens: map[string]string{}, dialed: map[string]bool{},
	}
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	s.hub = fleet.Add("")
	victim = newHostile(t, func(http.ResponseWriter, *http.Request) {})
	for name, answer := range hostileAnswers(s.secrets, victim.URL) {
		s.serve(t, name, answer)
	}
	s.serve(t, "status", status500)
	s.serve(t, "late-status", status500)
	return s, victim
}

// serve runs a hostile server to which a Secret leads, with a token of its own
// and an authority with a comment.
func (s *stage) serve(t *testing.T, name string, answer http.HandlerFunc) {
	t.Helper()
	late := strings.HasPrefix(name, "late-")
	h := newHostile(t, func(w http.ResponseWriter, r *http.Request) {
		if !late || !ordinary(w, r) {
			answer(w, r)
		}
	})
	s.servers[name], s.tokens[name] = h, s.secrets.plant("token of "+name)
	ca := append([]byte("# "+s.secrets.plant("comment of "+name)+"\n"), fleettest.PemOf(h.Server)...)
	s.describe(name, kubeconfigFor(h.URL, ca, "token: "+s.tokens[name]))
}

// broken describes clusters whose kubeconfigs are hostile or useless, and
// returns a file that must never exist.
func (s *stage) broken(t *testing.T) (canaryFile string) {
	t.Helper()
	dir := t.TempDir()
	canaryFile = filepath.Join(dir, "started")
	own := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(own, []byte(s.secrets.plant("content of a file")), 0o600))
	paths, err := filepath.Glob("../../clustercache/resolver/testdata/hostile/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(paths), 50)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data = bytes.ReplaceAll(data, []byte("CANARY_TOKEN_FILE"), []byte(own))
		data = bytes.ReplaceAll(data, []byte("CANARY_FILE"), []byte(canaryFile))
		s.describe("corpus-"+strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".yaml")), data)
	}
	certificate, private, err := cert.GenerateSelfSignedCertKey("client", nil, nil)
	require.NoError(t, err)
	s.secrets.others = append(s.secrets.others, strings.Split(string(private), "\n")[2])
	pair := "client-certificate-data: " + base64.StdEncoding.EncodeToString(certificate) + ", client-key-data: " +
		base64.StdEncoding.EncodeToString(private)
	plant := s.secrets.plant
	dead := "https://127.0.0.1:1"
	for name, kubeconfig := range map[string][]byte{
		"client-key":  kubeconfigFor(s.servers["html-401"].URL, fleettest.PemOf(s.servers["html-401"].Server), pair),
		"half-a-pair": kubeconfigFor(dead, nil, "client-key-data: "+base64.StdEncoding.EncodeToString(private)),
		"password":    kubeconfigFor(dead, nil, "username: u, password: "+plant("password")),
		"userinfo":    kubeconfigFor("https://user:"+plant("userinfo")+"@127.0.0.1:1", nil, "token: t"),
		"query":       kubeconfigFor(dead+"/?token="+plant("query"), nil, "token: t"),
		"exec": kubeconfigFor(dead, nil,
			"exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ['-c', 'touch "+canaryFile+
				"; echo "+plant("exec argument")+"'], env: [{name: T, value: "+plant("exec environment")+
				"}], interactiveMode: Never}"),
		"provider": kubeconfigFor(dead, nil, "auth-provider: {name: oidc, config: {refresh-token: "+
			plant("refresh token")+"}}"),
		"no-yaml":   []byte("token: [" + plant("what is no YAML")),
		"no-type":   []byte("users: {token: " + plant("value of a wrong type") + "}"),
		"bad-data":  kubeconfigFor(dead, []byte(plant("what is no certificate")), "token: t"),
		"bad-token": kubeconfigFor(dead, nil, `token: "`+plant("token before a newline")+`\r\nX: y"`),
		"dead":      kubeconfigFor(dead, nil, "token: "+plant("token of the dead")),
		"metadata":  kubeconfigFor("https://169.254.169.254", nil, "token: "+plant("token for the metadata service")),
	} {
		s.describe(name, kubeconfig)
	}
	return canaryFile
}
