// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// Every file of the corpus begins with its expected result: "refused field" or
// "invalid field".
func TestHostileKubeconfigsTouchNothingAndAreRefused(t *testing.T) {
	dir := t.TempDir()
	canaryFile := filepath.Join(dir, "started")
	tokenFile := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(resolvertest.CanaryToken), 0o600))
	paths, err := filepath.Glob("testdata/hostile/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			line, _, _ := bytes.Cut(data, []byte("\n"))
			verdict, field, _ := strings.Cut(strings.TrimPrefix(string(line), "# want: "), " ")
			data = bytes.ReplaceAll(data, []byte("CANARY_FILE"), []byte(canaryFile))
			data = bytes.ReplaceAll(data, []byte("CANARY_TOKEN_FILE"), []byte(tokenFile))

			access, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{})
			require.Error(t, err)
			require.True(t, access.IsZero())
			resolvertest.RequireNoCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
			if verdict == "refused" {
				refused, ok := errors.AsType[*resolver.RefusedError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, field, refused.Field)
			} else {
				invalid, ok := errors.AsType[*resolver.KubeconfigError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, field, invalid.Field)
			}
			require.NoFileExists(t, canaryFile)
		})
	}
}

// Expanding these documents would take minutes and gigabytes.
func TestHostileSizesAreCheapToRefuse(t *testing.T) {
	thousand := bytes.NewBufferString("apiVersion: v1\nkind: Config\ncontexts:\n")
	for i := range 1000 {
		fmt.Fprintf(thousand, "- {name: c%d, context: {cluster: c, user: u}}\n", i)
	}
	thousand.WriteString("clusters: [{name: c, cluster: {server: 'https://c.example'}}]\nusers: [{name: u, user: " +
		"{token: t}}]\n")

	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := range 12 {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	quadratic := "a: &a " + strings.Repeat("x", 128<<10) + "\nb: [" + strings.Repeat("*a,", 40<<10) + "]\n"

	reasons := map[string]string{
		"10 MB":           "has more than 262144 bytes, which is MaxBytes of the resolver's options",
		"NUL":             "has a NUL byte",
		"alias tree":      "has a YAML anchor",
		"alias of a text": "has a YAML anchor",
		"empty":           "is empty",
	}
	for name, data := range map[string][]byte{
		"10 MB":              bytes.Repeat([]byte("# nothing\n"), 1<<20),
		"1000 contexts":      thousand.Bytes(),
		"NUL":                append(resolvertest.TokenConfig("t"), "\n# \x00"...),
		"alias tree":         []byte(laughs.String()),
		"alias of a text":    []byte(quadratic),
		"nested lists":       bytes.Repeat([]byte("["), 256<<10),
		"nested closed":      append(bytes.Repeat([]byte("["), 9000), bytes.Repeat([]byte("]"), 9000)...),
		"nested mappings":    bytes.Repeat([]byte("{a: "), 60<<10),
		"nested block lists": bytes.Repeat([]byte("- "), 128<<10),
		"question marks":     bytes.Repeat([]byte("? "), 128<<10),
		"many keys":          bytes.Repeat([]byte("a: b\n"), 50<<10),
		"many documents":     bytes.Repeat([]byte("---\n"), 64<<10),
		"PEM beginnings": resolvertest.Kubeconfig("server: 'https://c.example', certificate-authority-data: "+
			resolvertest.Base64(bytes.Repeat([]byte("-----BEGIN A-----\n"), 9<<10)), "token: t"),
		"empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{})
			_, ok := errors.AsType[*resolver.KubeconfigError](err)
			require.True(t, ok, "%v", err)
			if want, ok := reasons[name]; ok {
				require.EqualError(t, err, "invalid kubeconfig: "+want)
			}
		})
	}
	access, err := resolver.Kubeconfig(thousand.Bytes(), resolver.KubeconfigOptions{Context: "c500"})
	require.NoError(t, err)
	require.Equal(t, "https://c.example", access.Config().Host)
}
