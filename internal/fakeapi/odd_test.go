// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestAKindIsAsOddAsItSays: what each oddity shows, of an object that was
// changed and one that was deleted, to a list and to a watch that resumes before
// both.
func TestAKindIsAsOddAsItSays(t *testing.T) {
	long := func(bytes int, number string) string {
		return `"resourceVersion":"` + strings.Repeat("v", bytes-len(number)-1) + "." + number + `"`
	}
	for name, c := range map[string]struct {
		kind                      Kind
		list, watch               string // a part of what they show
		neverListed, neverWatched string
	}{
		"plain": {list: `"resourceVersion":"108"`, watch: `"resourceVersion":"108"`, neverListed: "gone",
			neverWatched: `"ADDED"`},
		"repeats": {kind: Kind{Repeats: true}, watch: `"ADDED"`, neverListed: "gone", neverWatched: "gone"},
		"deletes": {kind: Kind{StaleDeletes: true}, watch: `"DELETED"`, neverListed: "gone", neverWatched: `"108"`},
		"versions": {kind: Kind{NoVersions: true}, watch: `"DELETED"`, neverListed: `"resourceVersion":"1`,
			neverWatched: `"resourceVersion":"1`},
		"lists": {kind: Kind{NoListVersions: true}, list: `"resourceVersion":"107"`, watch: `"resourceVersion":"107"`,
			neverListed: `"108"`, neverWatched: `"ADDED"`},
		"long": {kind: Kind{VersionBytes: 200}, list: long(200, "108"), watch: `"resourceVersion":"107"`,
			neverListed: `"108"`, neverWatched: "vv"},
		"longer": {kind: Kind{VersionBytes: 200, ObjectVersionBytes: 4096}, list: long(4096, "107"),
			watch: long(4096, "108"), neverListed: `"resourceVersion":"1`, neverWatched: `"resourceVersion":"1`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.kind.Group, c.kind.Kind = "example.com", "Sample"
				s := New(Options{Kinds: []Kind{c.kind}})
				gone := sample(t)
				gone.SetName("gone")
				require.NoError(t, s.Seed(gone))
				require.NoError(t, s.Seed(sample(t)))
				changed := sample(t)
				changed.SetLabels(map[string]string{"changed": "yes"})
				require.NoError(t, s.Seed(changed))
				require.NoError(t, s.Delete(gone.GroupVersionKind().GroupKind(), gone.GetNamespace(), "gone"))
				path := "/apis/example.com/v1/samples"
				list := as(t, s, path).Body.String()
				watch := as(t, s, path+"?watch=true&timeoutSeconds=1&resourceVersion="+
					worded(s.ResourceVersion()-2, c.kind.VersionBytes)).Body.String()
				require.Contains(t, list, c.list)
				require.Contains(t, watch, c.watch)
				require.NotContains(t, list, c.neverListed)
				require.NotContains(t, watch, c.neverWatched)
			})
		})
	}
}

// TestAHistoryThatIsCountedAnewKeepsTheObjects: they have other versions, and a
// watch from before gets 410, or is silent until the count gets there.
func TestAHistoryThatIsCountedAnewKeepsTheObjects(t *testing.T) {
	s := New(Options{})
	create(t, s, "a", "b")
	for range 9 {
		create(t, s, "c")
		require.NoError(t, s.Delete(configMapKind, "default", "c"))
	}
	before := as(t, s, configMaps).Body.String()
	last := s.ResourceVersion()
	s.Recount()
	require.Less(t, s.ResourceVersion(), last)
	after := as(t, s, configMaps).Body.String()
	require.NotEqual(t, before, after)
	require.Equal(t, strings.Count(before, `"uid"`), strings.Count(after, `"uid"`))
	require.Contains(t, as(t, s, configMaps+"?watch=true&timeoutSeconds=1&resourceVersion=101").Body.String(),
		`"code":410`)
}
