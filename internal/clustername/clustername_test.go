// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustername_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

func TestNamesReadAsUsual(t *testing.T) {
	for want, key := range map[string]types.NamespacedName{
		"hub":     {},
		"/hub":    {Name: "hub"},
		"a/b":     {Namespace: "a", Name: "b"},
		"/a/b":    {Name: "a/b"},
		"b":       {Name: "b"},
		"a/":      {Namespace: "a"},
		"hub/hub": {Namespace: "hub", Name: "hub"},
		"ünal/東京": {Namespace: "ünal", Name: "東京"},
		"a%2Fb/c": {Namespace: "a/b", Name: "c"},
		"a/b/c":   {Namespace: "a", Name: "b/c"},
		"50%25":   {Name: "50%"},
		"%FFx%0A": {Name: "\xffx\n"},
		"%C2%85":  {Name: "\u0085"},
		"%C285":   {Name: "\xc285"},
	} {
		require.Equal(t, want, clustername.Of(key))
	}
}

// TestNamesNeverCollide tries all short keys made of the characters that
// matter.
func TestNamesNeverCollide(t *testing.T) {
	parts := []string{""}
	for range 4 {
		for _, p := range parts {
			for _, c := range []string{"a", "/", "%", "2", "F", "\xff", "\n", "hub"} {
				if len(p) < 3 {
					parts = append(parts, p+c)
				}
			}
		}
	}
	parts = parts[:min(repeat.Times(600), len(parts))]
	seen := map[string]types.NamespacedName{}
	for _, namespace := range parts {
		for _, name := range parts {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			text := clustername.Of(key)
			if other, taken := seen[text]; taken && other != key {
				require.Failf(t, "collision", "%q and %q are %q", other, key, text)
			}
			seen[text] = key
			back, ok := clustername.Parse(text)
			require.True(t, ok, text)
			require.Equal(t, key, back)
			require.True(t, utf8.ValidString(text))
		}
	}
}

func TestParseRefusesWhatIsNoName(t *testing.T) {
	for _, text := range []string{"", "/", "/a", "%", "%2f/a", "a\nb", "%41"} {
		_, ok := clustername.Parse(text)
		require.False(t, ok, text)
	}
}
