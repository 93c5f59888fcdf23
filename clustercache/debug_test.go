// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
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
		w, err := cc.Cluster(fleettest.Key("east")).Watch(t.Context(), &corev1.ConfigMap{},
			client.InNamespace("default"),
			client.MatchingLabels{"app": "web"})
		require.NoError(t, err)
		_, err = cc.Cluster(fleettest.Key("east")).Watch(t.Context(),
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
			"needy", "example.com/v1 Widget", "does not serve this kind", "uid-east"} {
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
		require.NoError(t, cc.Cluster(evil).Engage())
		_, err := cc.Cluster(evil).Watch(t.Context(),
			clustercache.Kind(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: hostile}))
		require.NoError(t, err)
		synctest.Wait()
		name, rendered := hostile+"/"+evil.Name, clustername.Of(evil)
		require.NotEqual(t, name, rendered)
		for _, query := range []string{"", "phase=" + url.QueryEscape(hostile), "cluster=" + url.QueryEscape(name),
			"cluster=" + url.QueryEscape(rendered), "q=" + url.QueryEscape(`"><script>`), "group=reason",
			"reason=" + url.QueryEscape(hostile), "refresh=" + url.QueryEscape(hostile)} {
			text := browse(t, cc.DebugHandler(), query, http.StatusOK)
			require.NotContains(t, text, "<script")
			require.NotContains(t, text, "<img")
			require.Contains(t, text, "&lt;script&gt;")
		}
		require.Contains(t, browse(t, cc.DebugHandler(), "", http.StatusOK), `href="?cluster=%22%3E%3Cscript`)
		require.NotContains(t, browse(t, cc.DebugHandler(), "cluster="+url.QueryEscape("<script>"),
			http.StatusNotFound), "<script")
		require.NotContains(t, browse(t, cc.DebugHandler(), "format=json", http.StatusOK), "<script")
	})
}

// TestDebugPageShowsWhatIsTried: endpoint, failures, next attempt, age of the
// credentials, the last changes, and the runbook. A watch says whether its
// cluster is not connected or does not serve its kind.
func TestDebugPageShowsWhatIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		page := cc.DebugHandler()
		_, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(),
			clustercache.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		contains(t, browse(t, page, "cluster=fleet%2Fa", http.StatusOK), "http://fake.test", "none failed",
			"in use for 1m 0s, end unknown", "The cluster does not serve this kind.")

		api.Die()
		require.Error(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		time.Sleep(3 * time.Minute)
		detail := browse(t, page, "cluster=fleet%2Fa", http.StatusOK)
		contains(t, detail, "http://fake.test", "failed, the next in ", "no, lost 2m 5",
			"runbook.md#phase-disconnected", "runbook.md#unreachable",
			"Not connected: the kind is looked up once the cluster is.")
		require.NotContains(t, detail, "does not serve")
		require.Regexp(t, `(?s)Last changes.*Disconnected.*Unreachable.*Degraded.*Ready.*Connecting.*Watches`, detail)
		contains(t, browse(t, page, "", http.StatusOK), "failed, the next in ", "· http://fake.test")

		var body struct {
			Clusters []struct{ Endpoint string }
			Timeline []struct{ Phase, Reason string }
		}
		require.NoError(t, json.Unmarshal(
			[]byte(browse(t, page, "cluster=fleet/a&format=json", http.StatusOK)), &body))
		require.Equal(t, "http://fake.test", body.Clusters[0].Endpoint)
		require.Equal(t, "Disconnected", body.Timeline[0].Phase)
		require.Equal(t, "Unreachable", body.Timeline[0].Reason)
	})
}

// TestDebugPageOfAClusterThatWasNeverReached shows the address that was tried,
// without user, password, path and query.
func TestDebugPageOfAClusterThatWasNeverReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		config := api.Config()
		config.Host = "http://user:secret@fake.test/clusters/a?token=secret"
		d.Set(fleettest.Key("a"), config)
		api.Die()
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Minute)
		detail := browse(t, cc.DebugHandler(), "cluster=fleet%2Fa", http.StatusOK)
		contains(t, detail, "http://fake.test<", "none in use")
		require.NotContains(t, detail, "secret")
		require.NotContains(t, detail, "clusters/a")
	})
}

// TestDebugPageSelectsAndGroups: by phase, by reason and by words.
func TestDebugPageSelectsAndGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 3, nil)
		for i, api := range apis {
			if i > 0 {
				api.Die()
			}
			require.NoError(t, cc.Cluster(fleettest.Key(string(rune('a'+i)))).Engage())
		}
		require.NoError(t, cc.Cluster(fleettest.Key("missing")).Engage())
		time.Sleep(time.Minute)
		shown := func(query string) (names []string) {
			for _, match := range clusterLink.FindAllStringSubmatch(
				browse(t, cc.DebugHandler(), query, http.StatusOK), -1) {
				names = append(names, match[1])
			}
			return names
		}
		require.Equal(t, []string{"fleet/b", "fleet/c", "fleet/missing", "fleet/a"}, shown(""))
		require.Equal(t, []string{"fleet/b", "fleet/c"}, shown("reason=Unreachable"))
		require.Equal(t, []string{"fleet/b", "fleet/c"}, shown("q=REFUSED+connection"))
		require.Equal(t, []string{"fleet/c"}, shown("q=fleet/c"))
		require.Equal(t, []string{"fleet/b", "fleet/c"}, shown("q=fake.test+disconnected"), "by endpoint and phase")
		require.Empty(t, shown("q=nothing+fleet"))
		require.Equal(t, []string{"fleet/a"}, shown("q=v1.36&phase=Ready"))
		require.Equal(t, []string{"fleet/b", "fleet/c", "fleet/missing", "fleet/a"}, shown("group=reason"))

		grouped := browse(t, cc.DebugHandler(), "group=reason", http.StatusOK)
		require.Regexp(t, `(?s)<h2>Unreachable .*<h2>NoAccess .*<h2>Without a reason `, grouped)
		require.Contains(t, grouped, "No connection can be made, or it broke.")
		contains(t, browse(t, cc.DebugHandler(), "q=nothing&phase=Ready&refresh=5", http.StatusOK),
			"No cluster is Ready matches “nothing”", `<meta http-equiv="refresh" content="5">`,
			`<input type="hidden" name="phase" value="Ready">`, `name="q" value="nothing"`,
			"?format=json&amp;phase=Ready&amp;q=nothing&amp;refresh=5")
	})
}

var clusterLink = regexp.MustCompile(`<td class="key"><a href="[^"]*">([^<]*)</a>`)

// TestDebugPageRefreshesWithinBounds: without a script, and never in a loop.
func TestDebugPageRefreshesWithinBounds(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	for given, want := range map[string]string{"1": "2", "30": "30", "99999": "3600"} {
		require.Contains(t, browse(t, cc.DebugHandler(), "refresh="+given, http.StatusOK),
			`<meta http-equiv="refresh" content="`+want+`">`)
	}
	for _, given := range []string{"", "0", "-5", "x", "1%3burl=http://elsewhere"} {
		require.NotContains(t, browse(t, cc.DebugHandler(), "refresh="+given, http.StatusOK), "http-equiv")
	}
}

// TestDebugPageHasEnoughContrast computes the contrast of each colour of text
// with each background, in the light and in the dark, as WCAG 2 defines it.
func TestDebugPageHasEnoughContrast(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	css, _, _ := strings.Cut(browse(t, cc.DebugHandler(), "", http.StatusOK), "</style>")
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(css, -1)
	require.Len(t, schemes, 2, "light and dark")
	for _, scheme := range schemes {
		colors := map[string]float64{}
		for _, match := range regexp.MustCompile(`--([a-z]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(scheme[1], -1) {
			colors[match[1]] = luminance(t, match[2])
		}
		require.Len(t, colors, 8)
		for _, text := range []string{"fg", "dim", "bad", "meh", "good"} {
			for _, ground := range []string{"bg", "soft"} {
				light, dark := max(colors[text], colors[ground]), min(colors[text], colors[ground])
				require.GreaterOrEqual(t, (light+0.05)/(dark+0.05), 4.5, "%s on %s", text, ground)
			}
		}
	}

	for _, match := range regexp.MustCompile(`[{;] *(?:color|background): ([^;]*);`).FindAllStringSubmatch(css, -1) {
		require.Regexp(t, `^(inherit|var\(--[a-z]+\))$`, match[1], "no other colours")
	}
	require.NotRegexp(t, `opacity: [0.]`, css)
}

// luminance returns the relative luminance of a colour.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(color[1:], 16, 32)
	require.NoError(t, err)
	linear := func(channel uint64) float64 {
		c := float64(channel&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

func contains(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		require.Contains(t, page, part)
	}
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
