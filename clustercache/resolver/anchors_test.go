// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// passwordConfigs writes the same kubeconfig with the password in each of
// YAML's styles that can hold it.
func passwordConfigs(t testing.TB, password string) map[string][]byte {
	t.Helper()
	quoted, err := json.Marshal(password)
	require.NoError(t, err)
	const server = "server: 'https://c.example'"
	out := map[string][]byte{
		"double": resolvertest.Kubeconfig(server, "username: u, password: "+string(quoted)),
		"single": resolvertest.Kubeconfig(server, "username: u, password: '"+
			strings.ReplaceAll(password, "'", "''")+"'"),
	}
	var user any
	require.NoError(t, yaml.Unmarshal(out["double"], &user))
	out["marshalled"], err = yaml.Marshal(user)
	require.NoError(t, err)
	out["json"], err = yaml.YAMLToJSON(out["double"])
	require.NoError(t, err)
	head := bytes.TrimSuffix(resolvertest.Kubeconfig(server, ""), []byte("users: [{name: u, user: {}}]\n"))
	out["literal"] = fmt.Appendf(bytes.Clone(head),
		"users:\n- name: u\n  user:\n    username: u\n    password: |-\n      %s\n", password)
	out["plain"] = fmt.Appendf(bytes.Clone(head),
		"users:\n- name: u\n  user:\n    username: u\n    password: %s\n", password)
	return out
}

// TestHazardAnAmpersandIsNoAnchor checks that the content of a scalar, in any
// style, or of a comment is never taken for an anchor.
func TestHazardAnAmpersandIsNoAnchor(t *testing.T) {
	for _, password := range []string{
		"p&w", "a &x", "a & x", "a,&b", "a[&b", "(&b)", "-&b", "x &b *b", "a{&b}", "http://h/?a=b&c", "é&é", "a' &b",
	} {
		for style, data := range passwordConfigs(t, password) {
			if style == "single" && strings.Contains(password, "\n") {
				continue
			}
			access := load(t, data, resolver.Allow{BasicAuth: true})
			require.Equal(t, password, access.Config().Password, "%s: %s", style, password)
		}
	}
	load(t, append(resolvertest.TokenConfig("t"), "# users: &anchor\n"...), resolver.Allow{})
	for _, anchored := range []string{
		"x: &a b\n", "x: &a [b, *a]\n", "? &a b\n: c\n", "- &a\n", "&a x: y\n", "x: [&a b]\n", "x: {&a b: c}\n",
		"x: {\"a\":&a b}\n", "x: !!str &a b\n",
		"x: &é b\n", "x: &a-_9 b\n", "x: 'y'\nz: &a\n  - b\n",
	} {
		_, err := resolver.Kubeconfig([]byte(anchored), resolver.KubeconfigOptions{})
		require.ErrorContains(t, err, "invalid kubeconfig: ", anchored)
		if !strings.Contains(anchored, "é") && anchored[0] != '-' {
			require.EqualError(t, err, "invalid kubeconfig: has a YAML anchor", anchored)
		}
	}
}

// FuzzAnchors checks that any password is read unchanged, and that no accepted
// document has an alias for the parser that expands aliases.
func FuzzAnchors(f *testing.F) {
	for _, seed := range []string{
		"p&w", "a &x", "&a *a", "x: &a b\ny: *a", "{a: &b c, d: *b}", "\"a\":&b", "# &a\n*a", "|\n &a\n*a", "!<&a> *a",
		"%TAG ! &\n--- *a", "- &a\n- *a", "? &a\n: *a",
		"\"&a\n *a\"", "'&a'' *a'", "a: >-\n  &a\n\n *a", "[&a,*a]", "&a#\n*a", "\ufeff&a x\n", "a\u2028&a b",
		"\t&a b: *a", "--- &a\n...\n--- *a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if isText(text) {
			for style, data := range passwordConfigs(t, text) {
				if style == "literal" || style == "plain" || style == "single" {
					continue // a style cannot hold every text
				}
				access, err := resolver.Kubeconfig(data,
					resolver.KubeconfigOptions{Allow: resolver.Allow{BasicAuth: true, Anonymous: true}})
				require.NoError(t, err, "%s: %q", style, data)
				require.Equal(t, text, access.Config().Password, "%s", style)
			}
		}

		if !strings.Contains(text, "&") || resolver.RefusesAnchors([]byte(text)) {
			return
		}
		// For a parser that expands aliases, an alias without its anchor is an
		// error.
		_, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "&", "!")))
		if err != nil {
			require.NotContains(t, err.Error(), "unknown anchor", "%q", text)
		}
		expanded, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			require.LessOrEqual(t, len(expanded), 64+16*len(text), "%q", text)
		}
	})
}

// isText reports whether YAML can contain a text, and a header a password of
// it.
func isText(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
