// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build chromium

package page_test

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var screenshots = flag.String("screenshots", "", "the directory in which screenshots are stored; empty: nowhere")

// TestRealPageShowsWhyAClusterIsDown kills a cluster while a browser shows the
// page: without a script, and without the user, the page says that the cluster
// is down, and why.
func TestRealPageShowsWhyAClusterIsDown(t *testing.T) {
	names := []string{"east", "north", "west"}
	servers := testenv.Start(t, len(names))
	d := fleettest.NewDirectory()
	cc := fleettest.Start(t, clustercache.Options{Resolver: d, Discover: true})
	for i, name := range names {
		d.Set(fleettest.Key(name), servers[i].Config())
		w, err := cc.Cluster(fleettest.Key(name)).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	d.Fail(fleettest.Key("south"), resolver.ErrSecretNotFound)
	require.NoError(t, cc.Cluster(fleettest.Key("south")).Engage())
	web := httptest.NewServer(cc.DebugHandler())
	t.Cleanup(web.Close)
	b := launch(t)
	b.show(desktop, "light")
	b.open(web.URL + "/?refresh=2")
	require.Regexp(t, `Ready 3`, b.text())

	require.NoError(t, servers[2].Kill())
	killed := time.Now()
	for text := b.text(); !strings.Contains(text, "Disconnected 1"); text = b.text() {
		require.Less(t, time.Since(killed), time.Minute, text)
		b.loaded(func() {}) // by itself
	}
	t.Logf("the page has said so %s after the kill", time.Since(killed).Round(100*time.Millisecond))
	require.Regexp(t, `(?s)fleet/west\s+Disconnected.*Unreachable.*connection refused.*attempts? failed`, b.text())

	checkPhone(t, b, web.URL)
	checkDetail(t, b, web.URL)
	checkSearch(t, b, web.URL)
	shoot(t, b, web.URL)
}

// checkPhone requires that a phone shows the phase and the cause of each
// cluster without scrolling sideways.
func checkPhone(t *testing.T, b *browser, url string) {
	t.Helper()
	b.show(phone, "light")
	b.open(url)
	require.Equal(t, phone.width, width(b), "the page is as wide as the phone")
	var rows []struct {
		Name, Phase, Cause string
		Seen               bool // all three lie within the width, and take room
	}
	b.evaluate(`[...document.querySelectorAll("tr:has(td.key)")].map(row => {
		const cells = [".key", ".state", ".text"].map(c => row.querySelector(c))
		const boxes = cells.filter(c => c.textContent.trim()).map(c => c.getBoundingClientRect())
		const [Name, Phase, Cause] = cells.map(c => c.innerText)
		const Seen = boxes.every(r => r.width > 0 && r.height > 0 && r.left >= 0 && r.right <= 390)
		return {Name, Phase, Cause, Seen}
	})`, &rows)
	require.Len(t, rows, 4)
	causes := map[string]string{"fleet/west": "Unreachable", "fleet/south": "NoAccess"}
	for _, row := range rows {
		require.True(t, row.Seen, "%+v", row)
		require.NotEmpty(t, row.Phase)
		require.Contains(t, row.Cause, causes[row.Name])
		delete(causes, row.Name)
	}
	require.Empty(t, causes)
}

// checkDetail requires that the page of a cluster fits a phone, too.
func checkDetail(t *testing.T, b *browser, url string) {
	t.Helper()
	b.open(url + "/?cluster=fleet/west")
	require.Equal(t, phone.width, width(b))
	require.Regexp(t, `(?s)Unreachable.*connection refused.*Endpoint\s+https://127.*Last changes.*Disconnected`,
		b.text())
}

// checkSearch fills in the form, and sends it.
func checkSearch(t *testing.T, b *browser, url string) {
	t.Helper()
	b.open(url + "/?refresh=3600")
	b.loaded(func() {
		b.evaluate(`document.querySelector("input[name=q]").value = "west refused"
			document.querySelector("form button").click()`, nil)
	})
	var address string
	b.evaluate("location.search", &address)
	require.Equal(t, "?q=west+refused&refresh=3600", address)
	require.Contains(t, b.text(), "fleet/west")
	require.NotContains(t, b.text(), "fleet/east")
}

func width(b *browser) (width int) {
	b.t.Helper()
	b.evaluate("document.documentElement.scrollWidth", &width)
	return width
}

// shoot stores screenshots, if asked to.
func shoot(t *testing.T, b *browser, url string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	for _, s := range []screen{desktop, phone} {
		for _, scheme := range []string{"light", "dark"} {
			b.show(s, scheme)
			b.open(url)
			path := filepath.Join(*screenshots, "page-"+s.name+"-"+scheme+".png")
			require.NoError(t, os.WriteFile(path, b.screenshot(), 0o600))
		}
	}
}
