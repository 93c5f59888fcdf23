// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/restmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends a request as the administrator and reads the response.
func ask(t *testing.T, s *Server, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://fake"+path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Transport().RoundTrip(r)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(text)
}

func configMap(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name +
		`","namespace":"default"},"data":{"a":"b"}}`
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func create(t *testing.T, s *Server, names ...string) {
	t.Helper()
	for _, name := range names {
		resp, text := ask(t, s, http.MethodPost, configMaps, configMap(name), "Content-Type", "application/json")
		require.Equal(t, http.StatusCreated, resp.StatusCode, text)
	}
}

func TestDiscoveryIsWhatOurMapperVerifiesAndShares(t *testing.T) {
	table := restmap.NewTable()
	var statuses []int
	mapper := func(s *Server) *restmap.Mapper {
		return table.NewMapper(func(r *http.Request) (*http.Response, error) {
			resp, err := s.Transport().RoundTrip(r)
			statuses = append(statuses, resp.StatusCode)
			return resp, err
		}, "http://fake", restmap.Options{NegativeTTL: time.Nanosecond})
	}
	deployments := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	for i := range 2 {
		m := mapper(New(Options{Identity: strconv.Itoa(i)}))
		found, err := m.ResourceFor(t.Context(), deployments)
		require.NoError(t, err)
		require.Equal(t, "deployments", found.Resource.Resource)
		require.True(t, found.Namespaced)
	}
	require.Equal(t, []int{200, 200, 304, 304}, statuses,
		"the second cluster's is known by its ETag, which was verified")

	s := New(Options{Kinds: []Kind{
		{Group: "example.com", Kind: "Policy", ClusterScoped: true, Versions: []string{"v1", "v1beta1"}}}})
	found, err := mapper(s).ResourceFor(t.Context(), schema.GroupVersionKind{Group: "example.com", Kind: "Policy"})
	require.NoError(t, err)
	require.Equal(t, "policies", found.Resource.Resource)
	require.False(t, found.Namespaced)
}

func TestDiscoveryOfClientGo(t *testing.T) {
	s := New(Options{Kinds: []Kind{{Group: "example.com", Kind: "Widget", Status: true}}})
	for _, legacy := range []bool{false, true} {
		c, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: "http://fake"},
			&http.Client{Transport: s.Transport()})
		require.NoError(t, err)
		c.UseLegacyDiscovery = legacy
		groups, resources, err := c.ServerGroupsAndResources()
		require.NoError(t, err)
		require.Greater(t, len(groups), 15)
		names := map[string]bool{}
		for _, list := range resources {
			for _, r := range list.APIResources {
				names[list.GroupVersion+" "+r.Name] = r.Namespaced
			}
		}
		require.Contains(t, names, "v1 pods")
		require.Contains(t, names, "apps/v1 deployments/status")
		require.Contains(t, names, "example.com/v1 widgets")
		require.True(t, names["example.com/v1 widgets"])
		require.False(t, names["v1 nodes"])
		version, err := c.ServerVersion()
		require.NoError(t, err)
		require.Equal(t, Version, version.GitVersion)
	}
}

// frames reads a watch until it ends or n frames have arrived.
func frames(t *testing.T, body io.Reader, n int) []metav1.WatchEvent {
	t.Helper()
	var out []metav1.WatchEvent
	in := json.NewDecoder(body)
	for len(out) < n {
		var e metav1.WatchEvent
		if err := in.Decode(&e); err != nil {
			require.ErrorIs(t, err, io.EOF)
			return out
		}
		out = append(out, e)
	}
	return out
}

func watch(t *testing.T, s *Server, query string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.Transport().RoundTrip(
		httptest.NewRequestWithContext(ctx, http.MethodGet, "http://fake"+configMaps+"?watch=true&"+query, nil))
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	return resp
}

func kindsOf(events []metav1.WatchEvent) []string {
	var out []string
	for _, e := range events {
		u := &unstructured.Unstructured{}
		_ = u.UnmarshalJSON(e.Object.Raw)
		out = append(out, strings.TrimSpace(e.Type+" "+u.GetName()))
	}
	return out
}

func TestWatchesSendBookmarksEveryMinuteAndEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		create(t, s, "a")
		resp := watch(t, s, "allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion="+
			strconv.FormatInt(s.ResourceVersion(), 10))
		create(t, s, "b")
		began := time.Now()
		require.Equal(t, []string{"ADDED b", "BOOKMARK", "BOOKMARK"}, kindsOf(frames(t, resp.Body, 10)))
		require.Equal(t, 150*time.Second, time.Since(began))
	})
}

func TestStreamedListsNeedWhatRealServersNeed(t *testing.T) {
	s := New(Options{})
	create(t, s, "a", "b")
	const whole = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	events := frames(t, watch(t, s, whole).Body, 3)
	require.Equal(t, []string{"ADDED a", "ADDED b", "BOOKMARK"}, kindsOf(events))
	require.Contains(t, string(events[2].Object.Raw), metav1.InitialEventsAnnotationKey)
	for _, broken := range []string{
		"sendInitialEvents=true&allowWatchBookmarks=true", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"resourceVersionMatch=NotOlderThan",
	} {
		require.Equal(t, http.StatusUnprocessableEntity, watch(t, s, broken).StatusCode, broken)
	}
	future := kindsOf(frames(t, watch(t, s, whole+"&resourceVersion=99999").Body, 3))
	require.Equal(t, []string{"ERROR"}, future)
}

func TestCompactedHistoryExpiresWatchesAndPagesButNotOpenWatches(t *testing.T) {
	s := New(Options{})
	create(t, s, "a", "b", "c")
	old := strconv.FormatInt(s.ResourceVersion(), 10)
	open := watch(t, s, "resourceVersion="+old)
	_, text := ask(t, s, http.MethodGet, configMaps+"?limit=1", "")
	page := &metav1.List{}
	require.NoError(t, json.Unmarshal([]byte(text), page))
	require.NotEmpty(t, page.Continue)
	create(t, s, "d")
	s.Compact()
	create(t, s, "e")
	require.Equal(t, []string{"ADDED d", "ADDED e"}, kindsOf(frames(t, open.Body, 2)))
	events := frames(t, watch(t, s, "resourceVersion="+old).Body, 2)
	require.Len(t, events, 1)
	require.Equal(t, "ERROR", events[0].Type)
	status := &metav1.Status{}
	require.NoError(t, json.Unmarshal(events[0].Object.Raw, status))
	require.True(t, apierrors.IsResourceExpired(&apierrors.StatusError{ErrStatus: *status}))
	resp, _ := ask(t, s, http.MethodGet, configMaps+"?limit=1&continue="+page.Continue, "")
	require.Equal(t, http.StatusGone, resp.StatusCode)
}

func TestListsAtAResourceVersion(t *testing.T) {
	s := New(Options{})
	create(t, s, "a")
	before := strconv.FormatInt(s.ResourceVersion(), 10)
	create(t, s, "b")
	_, text := ask(t, s, http.MethodGet, configMaps+"?resourceVersionMatch=Exact&resourceVersion="+before, "")
	require.Contains(t, text, `"name":"a"`)
	require.NotContains(t, text, `"name":"b"`)
	resp, text := ask(t, s, http.MethodGet, configMaps+"?resourceVersion=99999", "")
	require.Equal(t, http.StatusGatewayTimeout, resp.StatusCode)
	require.Contains(t, text, "ResourceVersionTooLarge")
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	resp, _ = ask(t, s, http.MethodGet, configMaps+"?resourceVersion=nonsense", "")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestUnknownPathsAndVerbs(t *testing.T) {
	s := New(Options{})
	for path, code := range map[string]int{
		"/api/v1/nonsense": 404, "/apis/apps/v9/deployments": 404, "/nonsense": 404, "/api/v1/configmaps/a": 404,
		configMaps + "/a/scale": 404, "/api/v1/namespaces/default/nodes": 404, "/api/v1/namespaces/kube-system": 200,
		"/readyz":                             200,
		"/api/v1/namespaces/default/bindings": 405,
	} {
		resp, text := ask(t, s, http.MethodGet, path, "")
		require.Equal(t, code, resp.StatusCode, "%s: %s", path, text)
	}
}

func TestOthersThanTheAdministratorNeedAToken(t *testing.T) {
	s := New(Options{Authenticate: func(token string) (string, bool) { return "me", token == "good" }})
	for token, want := range map[string]map[string]int{
		"":            {"/version": 200, configMaps: 403},
		"Bearer bad":  {"/version": 401, configMaps: 401},
		"Bearer good": {"/version": 200, configMaps: 200},
	} {
		for path, code := range want {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://fake"+path, nil)
			if token != "" {
				r.Header.Set("Authorization", token)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			require.Equal(t, code, w.Code, "%s %s", token, path)
		}
	}
	require.Len(t, s.Requests(nil), 3, "what is not authenticated is not a request of anybody")
	require.Len(t, s.Requests(
		func(r *Request) bool { return r.User == "me" && r.Resource == "configmaps" && r.Verb == "list" }), 1)
}

func TestIdentityMakesUIDs(t *testing.T) {
	a, b, c := New(Options{Identity: "a"}), New(Options{Identity: "a"}), New(Options{Identity: "c"})
	require.Equal(t, a.UID(), b.UID())
	require.NotEqual(t, a.UID(), c.UID())
	c.Become("a")
	require.Equal(t, a.UID(), c.UID())
}

func TestANamespaceThatIsDeletedTerminatesAndTakesNothingNew(t *testing.T) {
	s := New(Options{})
	resp, text := ask(t, s, http.MethodDelete, "/api/v1/namespaces/default", "")
	require.Equal(t, 200, resp.StatusCode, text)
	_, text = ask(t, s, http.MethodGet, "/api/v1/namespaces/default", "")
	require.Contains(t, text, "Terminating")
	resp, _ = ask(t, s, http.MethodPost, configMaps, configMap("a"), "Content-Type", "application/json")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}
