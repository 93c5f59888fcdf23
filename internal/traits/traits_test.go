// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package traits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/traits"
)

// TestTraitsOfSelectors: what is no trait of all objects, or of no selector, is
// none.
func TestTraitsOfSelectors(t *testing.T) {
	for selector, name := range map[string]string{
		"metadata.name=a":                       "a",
		"metadata.name==a":                      "a",
		`metadata.name=a\,b`:                    "a,b",
		"metadata.name!=a":                      "",
		"metadata.name=a,metadata.namespace=ns": "",
		"metadata.namespace=a":                  "",
		"spec.nodeName=a":                       "",
		"":                                      "",
		"metadata.name":                         "",
	} {
		require.Equal(t, name, traits.Name(selector), selector)
	}
	for selector, want := range map[string][2]string{
		"a=b":             {"a", "b"},
		"a==b":            {"a", "b"},
		"a in (b)":        {"a", "b"},
		"a in (b, c)":     {},
		"a notin (b)":     {},
		"a!=b":            {},
		"a":               {},
		"!a":              {},
		"a>1":             {},
		"a in (b, c),d=e": {"d", "e"},
		"a=":              {"a", ""},
		"":                {},
		"a in b":          {},
	} {
		key, value := traits.Label(selector)
		require.Equal(t, want[0], key, selector)
		require.Equal(t, want[1], value, selector)
	}
}
