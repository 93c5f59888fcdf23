// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build chromium

package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// refusedFleet returns a ClusterCache of 300 clusters, all of them Ready, where
// nine have a watch that their API server refuses, and the reasons of those.
func refusedFleet(t *testing.T) (cc *clustercache.ClusterCache, reasons map[string]string) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{
		Cache: clustercache.Options{ProbeTimeout: time.Minute}, // no probe fails on a machine that is busy
	})
	cc, reasons = fleet.ClusterCache(), map[string]string{}
	widget := clustercache.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	for i := range 300 {
		name := fmt.Sprintf("fleet/c-%03d", i)
		c := fleet.Add(name)
		_, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		switch {
		case i%60 == 5:
			c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Resource("configmaps"))
			reasons[name] = "Forbidden"
		case i%75 == 7:
			_, err := cc.Cluster(c.Key()).Watch(t.Context(), widget)
			require.NoError(t, err)
			reasons[name] = "NotServed"
		}
	}
	require.Len(t, reasons, 9)
	return cc, reasons
}

// TestPhoneShowsTheCauseOfEachRefusedWatchFirst has clusters that are all Ready:
// only the cause and the colour distinguish those with a refused watch.
func TestPhoneShowsTheCauseOfEachRefusedWatchFirst(t *testing.T) {
	cc, reasons := refusedFleet(t)
	require.Eventually(t, func() bool {
		ready, refused := 0, 0
		for _, s := range cc.Statuses() {
			if s.Phase == status.PhaseReady {
				ready++
			}
			if reasons[s.Cluster.String()] == s.Reason && s.Reason != "" {
				refused++
			}
		}
		return ready == 300 && refused == len(reasons)
	}, patience, 100*time.Millisecond)
	web := httptest.NewServer(cc.DebugHandler())
	t.Cleanup(web.Close)
	b := launch(t)
	b.show(phone, "light")
	forbidden := map[string]string{}
	for name, reason := range reasons {
		if reason == "Forbidden" {
			forbidden[name] = reason
		}
	}
	for query, want := range map[string]map[string]string{
		"":              reasons,
		"?group=reason": reasons,
		"?q=forbidden":  forbidden,
	} {
		b.open(web.URL + "/" + query)
		shootRefused(t, b, query)
		require.Equal(t, phone.width, width(b), query)
		checkRefused(t, b, want)
		checkTouch(t, b)
	}
	for _, name := range []string{"fleet/c-005", "fleet/c-007"} {
		b.open(web.URL + "/?cluster=" + name)
		shootRefused(t, b, strings.TrimPrefix(name, "fleet/"))
		require.Equal(t, phone.width, width(b), name)
		require.Contains(t, b.text(), reasons[name])
	}
}

// checkRefused requires that the first rows of the page are those of clusters
// with a reason, that each shows all of its cause within the width, and that
// their phase does not look like that of a cluster that is well.
func checkRefused(t *testing.T, b *browser, reasons map[string]string) {
	t.Helper()
	var rows []struct {
		Name, Cause, Color string
		Seen               bool
	}
	b.evaluate(`[...document.querySelectorAll("tr:has(td.key)")].map(row => {
		const [key, state, cause] = [".key", ".state", ".text"].map(c => row.querySelector(c))
		const range = document.createRange()
		range.selectNodeContents(cause)
		const text = range.getBoundingClientRect()
		const Seen = text.left >= 0 && text.right <= innerWidth && parseFloat(getComputedStyle(cause).fontSize) >= 14
		return {Name: key.innerText, Cause: cause.innerText, Color: getComputedStyle(state).color, Seen}
	})`, &rows)
	require.GreaterOrEqual(t, len(rows), len(reasons))
	wrong, well := map[string]bool{}, map[string]bool{}
	for i, row := range rows {
		if i >= len(reasons) {
			require.Empty(t, reasons[row.Name])
			well[row.Color] = true
			continue
		}
		require.NotEmpty(t, reasons[row.Name], "%+v", row)
		require.Contains(t, row.Cause, reasons[row.Name])
		require.Regexp(t, "configmaps is forbidden|no matches for kind \"Widget\"", row.Cause)
		require.True(t, row.Seen, "%+v", row)
		wrong[row.Color] = true
	}
	for color := range wrong {
		require.NotContains(t, well, color, "a cluster with a refused watch looks as if it were well")
	}
}

// checkTouch requires that fingers hit links and fields, and that a phone does
// not zoom into a field, as some do if its text is smaller than 16 pixels.
func checkTouch(t *testing.T, b *browser) {
	t.Helper()
	var lowest, smallest float64
	b.evaluate(`Math.min(...[...document.querySelectorAll("nav a, input[type=search], button")].map(
		e => e.getBoundingClientRect().height))`, &lowest)
	require.GreaterOrEqual(t, lowest, 34.0)
	b.evaluate(`parseFloat(getComputedStyle(document.querySelector("input[type=search]")).fontSize)`, &smallest)
	require.GreaterOrEqual(t, smallest, 16.0)
}

// shootRefused stores a screenshot, if asked to.
func shootRefused(t *testing.T, b *browser, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	name = strings.NewReplacer("?", "", "=", "-").Replace(name)
	path := filepath.Join(*screenshots, "refused-"+name+".png")
	require.NoError(t, os.WriteFile(path, b.screenshot(), 0o600))
}
