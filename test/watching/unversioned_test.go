// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var sample = schema.GroupVersionKind{Group: "samples.example.org", Version: "v1", Kind: "Sample"}

func newSample(name, value string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"value": value}}
	o.SetGroupVersionKind(sample)
	o.SetNamespace("default")
	o.SetName(name)
	return o
}

// TestKindWithoutVersionsIsUsable: it is watched, read and written, and
// whatever says how old an answer is says the truth.
func TestKindWithoutVersionsIsUsable(t *testing.T) {
	for name, kind := range map[string]fakeapi.Kind{
		"no versions":               {NoVersions: true},
		"no versions and uids":      {NoVersions: true, NoUID: true},
		"none that can be watched":  {NoVersions: true, NoUID: true, Verbs: []string{"create", "get", "list", "patch"}},
		"nothing exists at first":   {NoVersions: true, NoUID: true},
		"no uids, and no bookmarks": {NoVersions: true, NoUID: true, NoBookmarks: true},
	} {
		t.Run(name, func(t *testing.T) {
			kind.Group, kind.Kind = sample.Group, sample.Kind
			synctest.Test(t, func(t *testing.T) { testUnversioned(t, kind, name == "nothing exists at first") })
		})
	}
}

func testUnversioned(t *testing.T, kind fakeapi.Kind, empty bool) {
	t.Helper()
	api, d, log := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
	api.Fake.Register(kind)
	if !empty {
		require.NoError(t, api.Fake.Seed(newSample("one", "1")))
	}
	d.Set(keyOfA, api.Config())
	options := fleettest.Silent(d)
	options.Logger, options.ReadYourWrites = log.Logger(), time.Second
	cc := fleettest.Start(t, options)
	w, err := cc.Cluster(keyOfA).Watch(t.Context(), newSample("", ""))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	events := &fleettest.Recorder{}
	_, err = w.AddEventHandler(events)
	require.NoError(t, err)
	if empty {
		synctest.Wait()
		require.NoError(t, api.Fake.Seed(newSample("one", "1")))
	}
	is := func(want ...string) {
		t.Helper()
		time.Sleep(41 * time.Second) // PollInterval and a third
		synctest.Wait()
		require.Equal(t, want, events.Take())
	}
	is("Added one")
	require.NoError(t, api.Fake.Seed(newSample("one", "2")))
	is("Updated one")

	remote, err := cc.Cluster(keyOfA).Client()
	require.NoError(t, err)
	read := func(opts ...client.GetOption) (string, clustercache.Origin, error) {
		o, origin := newSample("", ""), clustercache.Origin{}
		err := remote.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, o,
			append(opts, &origin)...)
		value, _, _ := unstructured.NestedString(o.Object, "value")
		return value, origin, err
	}
	value, origin, err := read()
	require.NoError(t, err)
	require.Equal(t, "2", value)
	require.False(t, origin.Cached, "by default the server answers, as of every kind that is polled")
	value, origin, err = read(clustercache.CacheOnly)
	require.NoError(t, err)
	require.Equal(t, "2", value)
	require.True(t, origin.Cached)
	require.Empty(t, origin.ResourceVersion)
	require.WithinDuration(t, time.Now(), origin.LastSeen, 41*time.Second)

	api.FailWith(503, "/samples") // no list any more
	time.Sleep(50 * time.Second)
	_, _, err = read(clustercache.CacheOnly, clustercache.MaxStaleness(45*time.Second))
	require.ErrorIs(t, err, clustercache.ErrStale)
	api.Heal()
	time.Sleep(41 * time.Second)

	change := client.RawPatch(types.MergePatchType, []byte(`{"value":"3"}`))
	require.NoError(t, remote.Patch(t.Context(), newSample("one", ""), change))
	value, _, err = read()
	require.NoError(t, err)
	require.Equal(t, "3", value)
	_, _, err = read(clustercache.CacheOnly)
	require.ErrorIs(t, err, clustercache.ErrStale, "the answer does not show which state the cache has to reach")
	time.Sleep(time.Minute)
	value, _, err = read(clustercache.CacheOnly)
	require.NoError(t, err)
	require.Equal(t, "3", value)

	status := w.Status()
	require.NoError(t, status.LastError)
	require.True(t, status.Informer.Synced && status.Informer.Polling && status.Informer.Unversioned)
	page := httptest.NewRecorder()
	cc.DebugHandler().ServeHTTP(page, httptest.NewRequest("GET", "/?cluster=fleet/a", nil))
	require.Contains(t, page.Body.String(), "polled: no versions")
	require.Equal(t, 1, log.Count("Objects have no resourceVersion"), "%v", log.Lines)
	require.LessOrEqual(t, len(log.Lines), 10, "%v", log.Lines)
}
