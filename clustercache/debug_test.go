// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// browse sends a query to a debug page, and fails if the status is not the
// expected one.
func browse(t *testing.T, h http.Handler, query string, status int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/clusters?"+query, nil))
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	return w.Body.String()
}

func TestDebugPageShowsWhyAClusterIsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east, west := fleettest.NewAPI(t, "uid-east"), fleettest.NewAPI(t, "uid-west")
		east.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("east"), east.Config())
		d.Set(fleettest.Key("west"), west.Config())
		west.Die()
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		page := cc.DebugHandler()
		w, err := cc.Watch(t.Context(), fleettest.Key("east"), &corev1.ConfigMap{}, client.InNamespace("default"),
			client.MatchingLabels{"app": "web"})
		require.NoError(t, err)
		_, err = cc.Watch(t.Context(), fleettest.Key("east"),
			clustercache.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		owner := clustercache.Owner{GVK: corev1.SchemeGroupVersion.WithKind("Secret"),
			ObjectKey: client.ObjectKey{Namespace: "ns", Name: "needy"}}
		_, err = cc.Declare(t.Context(),
			owner, clustercache.Target{Cluster: fleettest.Key("east"), Kind: &corev1.ConfigMap{}})
		require.NoError(t, err)
		time.Sleep(time.Minute + time.Second)

		all := browse(t, page, "", http.StatusOK)
		for _, part := range []string{"2 clusters", ">fleet/east<", ">fleet/west<", "Ready 1", "Disconnected 1",
			"Unreachable", "connection refused"} {
			require.Contains(t, all, part)
		}
		require.NotContains(t, all, "<script")
		require.NotContains(t, browse(t, page, "phase=Ready", http.StatusOK), ">fleet/west<")
		require.Contains(t, browse(t, page, "phase=Gone", http.StatusOK), "No cluster is Gone")
		writeFor(t, "all.html", all)

		detail := browse(t, page, "cluster=fleet%2Fwest", http.StatusOK)
		for _, part := range []string{"Unreachable", "No connection can be made, or it broke.", "connection refused",
			"Nothing is watched."} {
			require.Contains(t, detail, part)
		}
		writeFor(t, "west.html", detail)
		detail = browse(t, page, "cluster=fleet%2Feast", http.StatusOK)
		for _, part := range []string{"v1 ConfigMap", "default, app=web", "2 of 2 synced", "v1.36.0", "Declared by",
			"needy", "example.com/v1 Widget", "has not said which resource", "uid-east"} {
			require.Contains(t, detail, part)
		}
		writeFor(t, "east.html", detail)
		browse(t, page, "cluster=fleet%2Fnorth", http.StatusNotFound)

		var body struct {
			Clusters []struct {
				Cluster, Phase, Reason, LastError string
				Connected                         bool
			}
			Watches []struct {
				Kind, LabelSelector, LastError string
				Informer                       struct{ State string }
			}
			Users   []struct{ Owners []struct{ Name string } }
			Reasons map[string]string
		}
		require.NoError(t, json.Unmarshal([]byte(browse(t, page, "format=json", http.StatusOK)), &body))
		require.Len(t, body.Clusters, 2)
		require.Equal(t, "fleet/west", body.Clusters[0].Cluster, "trouble comes first")
		require.Equal(t, "Unreachable", body.Clusters[0].Reason)
		require.Contains(t, body.Clusters[0].LastError, "connection refused")
		require.Equal(t, "No connection can be made, or it broke.", body.Reasons["Unreachable"])
		require.True(t, body.Clusters[1].Connected)
		require.Empty(t, body.Watches)
		require.NoError(t, json.Unmarshal([]byte(browse(t, page, "format=json&cluster=fleet/east", http.StatusOK)),
			&body))
		require.Len(t, body.Clusters, 1)
		require.Equal(t, "ConfigMap", body.Watches[0].Kind)
		require.Equal(t, "app=web", body.Watches[1].LabelSelector)
		require.Equal(t, "Synced", body.Watches[0].Informer.State)
		require.Contains(t, body.Watches[2].LastError, "Widget")
		require.Equal(t, "needy", body.Users[0].Owners[0].Name)
	})
}

// TestDebugPageEscapesWhatOthersWrote puts markup into names and errors, as a
// path in a kubeconfig might.
func TestDebugPageEscapesWhatOthersWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>`
		d := fleettest.NewDirectory()
		evil := client.ObjectKey{Namespace: hostile, Name: "a&b?cluster=c#d"}
		d.Fail(evil, errors.New(hostile))
		o := fleettest.Silent(d)
		o.Name = hostile
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Engage(evil))
		_, err := cc.Watch(t.Context(), evil,
			clustercache.Kind(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: hostile}))
		require.NoError(t, err)
		synctest.Wait()
		name, rendered := hostile+"/"+evil.Name, clustername.Of(evil)
		require.NotEqual(t, name, rendered)
		for _, query := range []string{"", "phase=" + url.QueryEscape(hostile), "cluster=" + url.QueryEscape(name),
			"cluster=" + url.QueryEscape(rendered)} {
			text := browse(t, cc.DebugHandler(), query, http.StatusOK)
			require.NotContains(t, text, "<script")
			require.NotContains(t, text, "<img")
			require.Contains(t, text, "&lt;script&gt;")
		}
		require.Contains(t, browse(t, cc.DebugHandler(), "", http.StatusOK), `href="?cluster=%22%3e%3cscript`)
		require.NotContains(t, browse(t, cc.DebugHandler(), "cluster="+url.QueryEscape("<script>"),
			http.StatusNotFound), "<script")
		require.NotContains(t, browse(t, cc.DebugHandler(), "format=json", http.StatusOK), "<script")
	})
}

func TestDebugPageOnlyAnswersGet(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	cc.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	require.Contains(t, browse(t, cc.DebugHandler(), "", http.StatusOK), "No cluster is known", "before Start, too")
}

// writeFor saves a page among the test's artifacts, for inspection.
func writeFor(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(t.ArtifactDir()+"/"+name, []byte(text), 0o600))
}
