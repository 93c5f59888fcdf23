// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configMapKind = schema.GroupKind{Kind: "ConfigMap"}

func sample(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(
		[]byte(`{"apiVersion":"example.com/v1","kind":"Sample","metadata":{"namespace":"default","name":"a"}}`)))
	return u
}

// as sends a request as a user.
func as(t *testing.T, s *Server, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://fake"+path, http.NoBody))
	return w
}

func listVersion(t *testing.T, s *Server) (list, object int64) {
	t.Helper()
	var l metav1.PartialObjectMetadataList
	require.NoError(t, json.Unmarshal(as(t, s, configMaps).Body.Bytes(), &l))
	require.Len(t, l.Items, 1)
	list, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
	require.NoError(t, err)
	object, err = strconv.ParseInt(l.Items[0].ResourceVersion, 10, 64)
	require.NoError(t, err)
	return list, object
}

func TestARestoreThatBumpsVersionsKeepsThoseOfObjects(t *testing.T) {
	s := New(Options{})
	create(t, s, "a")
	_, object := listVersion(t, s)
	backup := s.Snapshot()
	create(t, s, "b")
	last := s.ResourceVersion()
	s.RestoreBumped(backup, 1000)
	list, restored := listVersion(t, s)
	require.Equal(t, last-1+1000, list)
	require.Equal(t, object, restored)
	for _, rv := range []int64{object, last, list - 1} {
		answer := as(t, s, configMaps+"?watch=true&timeoutSeconds=1&resourceVersion="+strconv.FormatInt(rv, 10))
		require.Contains(t, answer.Body.String(), `"code":410`, "version %d", rv)
	}
}

func TestAPlainRestoreForgetsWhatWatchesCouldResumeFrom(t *testing.T) {
	s := New(Options{})
	create(t, s, "a")
	s.Restore(s.Snapshot())
	answer := as(t, s, configMaps+"?watch=true&timeoutSeconds=1&resourceVersion=101")
	require.Contains(t, answer.Body.String(), `"code":410`)
}

func TestLostChangesAreInListsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		from := s.ResourceVersion()
		s.Lose(func(k *Kind) bool { return k.Kind == "ConfigMap" }, true)
		create(t, s, "lost")
		s.Lose(func(*Kind) bool { return true }, false)
		create(t, s, "told")
		answer := as(t, s, configMaps+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion="+
			strconv.FormatInt(from, 10))
		require.NotContains(t, answer.Body.String(), `"lost"`)
		require.Contains(t, answer.Body.String(), `"told"`)
		require.Contains(t, answer.Body.String(), `"BOOKMARK"`)
		require.Contains(t, as(t, s, configMaps).Body.String(), `"lost"`)
	})
}

func TestStreamedListsCanBeRefused(t *testing.T) {
	s := New(Options{})
	const stream = configMaps +
		"?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, code := range []int{http.StatusUnprocessableEntity, http.StatusBadRequest} {
		s.RefuseStreams(code)
		require.Equal(t, code, as(t, s, stream).Code)
	}
	s.RefuseStreams(0)
	require.Equal(t, http.StatusOK, as(t, s, stream).Code)
}

func TestATokenThatIsTooOldBringsOneThatIsNot(t *testing.T) {
	s := New(Options{})
	create(t, s, "a", "b", "c")
	var page metav1.PartialObjectMetadataList
	require.NoError(t, json.Unmarshal(as(t, s, configMaps+"?limit=1").Body.Bytes(), &page))
	create(t, s, "d")
	s.Compact()
	answer := as(t, s, configMaps+"?limit=1&continue="+page.Continue)
	require.Equal(t, http.StatusGone, answer.Code)
	var status metav1.Status
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &status))
	rest := as(t, s, configMaps+"?continue="+status.Continue)
	require.NoError(t, json.Unmarshal(rest.Body.Bytes(), &page))
	require.Len(t, page.Items, 3)
}

func TestContentCanChangeUnderOneVersion(t *testing.T) {
	s := New(Options{})
	create(t, s, "a")
	list, object := listVersion(t, s)
	require.NoError(t, s.Rewrite(configMapKind, "default",
		"a", func(obj map[string]any) { obj["data"] = map[string]any{"a": "other"} }))
	require.Contains(t, as(t, s, configMaps).Body.String(), "other")
	sameList, sameObject := listVersion(t, s)
	require.Equal(t, []int64{list, object}, []int64{sameList, sameObject})
}

func TestKindsAreServedAsTheirDefinitionSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widget := Kind{Group: "example.com", Kind: "Widget", Versions: []string{"v1", "v1beta1"}}
		s := New(Options{Kinds: []Kind{widget,
			{Group: "example.com", Kind: "Sample", Verbs: []string{"get", "list"}, NoUID: true, NoVersions: true}}})
		path := "/apis/example.com/v1/widgets"
		watch := make(chan string)
		go func() { watch <- as(t, s, path+"?watch=true").Body.String() }()
		synctest.Wait()
		widget.Versions = widget.Versions[1:]
		s.Register(widget)
		<-watch
		require.Equal(t, http.StatusNotFound, as(t, s, path).Code)
		require.Equal(t, http.StatusOK, as(t, s, "/apis/example.com/v1beta1/widgets").Code)
		s.Unregister(schema.GroupKind{Group: "example.com", Kind: "Widget"})
		require.Equal(t, http.StatusNotFound, as(t, s, "/apis/example.com/v1beta1/widgets").Code)

		require.Equal(t, http.StatusMethodNotAllowed, as(t, s, "/apis/example.com/v1/samples?watch=true").Code)
		_, text := ask(t, s, http.MethodPost, "/apis/example.com/v1/namespaces/default/samples",
			`{"apiVersion":"example.com/v1","kind":"Sample","metadata":{"name":"a"}}`, "Content-Type",
			"application/json")
		require.Contains(t, text, "not supported")
		require.NoError(t, s.Seed(sample(t)))
		text = as(t, s, "/apis/example.com/v1/samples").Body.String()
		require.Contains(t, text, `"name":"a"`)
		require.NotContains(t, text, "uid")
		require.NotContains(t, text, `"resourceVersion":"1`)
	})
}

func TestRightsToANameSufficeForAListOfIt(t *testing.T) {
	var seen []Request
	s := New(Options{Intercept: func(r *Request) *Fault {
		seen = append(seen, *r)
		if r.Selected == "hang" {
			return &Fault{Answer: HTML(http.StatusNotFound)}
		}
		return nil
	}})
	as(t, s, configMaps+"?fieldSelector=metadata.name%3Da")
	as(t, s, configMaps+"?fieldSelector=metadata.name%21%3Da")
	require.Equal(t, []string{"a", ""}, []string{seen[0].Selected, seen[1].Selected})
	answer := as(t, s, configMaps+"?fieldSelector=metadata.name%3Dhang")
	require.Equal(t, "text/html", answer.Header().Get("Content-Type"))
	first, err := bufio.NewReader(strings.NewReader(answer.Body.String())).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, first, "404 Not Found")
}

func TestHangAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Intercept: func(*Request) *Fault { return &Fault{Answer: Hang} }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://fake"+configMaps, http.NoBody)
		began := time.Now()
		s.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, time.Hour, time.Since(began))
	})
}
