// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// ownKubeconfig is one as tools write it for a person. SERVER is to be
// replaced.
const ownKubeconfig = `
apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: SERVER
    certificate-authority: ca.crt
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {region: west}
contexts:
- {name: plugin, context: {cluster: c, user: plugin}}
- {name: file, context: {cluster: c, user: file}}
- {name: provider, context: {cluster: c, user: provider}}
- {name: terminal, context: {cluster: c, user: terminal}}
- {name: nobody, context: {cluster: c, user: absent}}
users:
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/plugin
      args: [token]
      env: [{name: PROFILE, value: mine}]
      interactiveMode: IfAvailable
      provideClusterInfo: true
- {name: file, user: {tokenFile: link}}
- {name: provider, user: {auth-provider: {name: gcp}}}
- name: terminal
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/plugin, interactiveMode: Always}}
`

// ownFiles writes a kubeconfig with what it refers to, and returns its path.
func ownFiles(t *testing.T, api *httptest.Server) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	write("bin/plugin", `#!/bin/sh
region=$(echo "$KUBERNETES_EXEC_INFO" | sed 's/.*"region":"\([a-z]*\)".*/\1/')
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
echo '"status":{"token":"'"$1-$PROFILE-$region"'"}}'
`, 0o700)
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})), 0o600)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("from-a-file\n"), 0o600))
	require.NoError(t, os.Symlink(token, filepath.Join(dir, "link")))
	return write("config", strings.ReplaceAll(ownKubeconfig, "SERVER", api.URL), 0o600)
}

// TestOwnKubeconfigIsUsedAsKubectlWould: plugins run, files are read wherever
// they are, and what kubectl refuses is refused with what to do instead.
func TestOwnKubeconfigIsUsedAsKubectlWould(t *testing.T) {
	var token string
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token = r.Header.Get("Authorization")
	}))
	defer api.Close()
	path := ownFiles(t, api)
	own, err := resolver.Files(resolver.FileOptions{Own: true, ID: resolver.ByContext}, path)
	require.NoError(t, err)
	for context, want := range map[string]string{"plugin": "Bearer token-mine-west", "file": "Bearer from-a-file"} {
		access, err := own.Resolve(t.Context(), resolvertest.Named(context))
		require.NoError(t, err)
		require.True(t, access.Trusted())
		client, err := rest.HTTPClientFor(access.Config())
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err, context)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, token)
		client.CloseIdleConnections()
	}

	for context, want := range map[string]string{
		"provider": "refused: user.auth-provider is not supported any more, as in kubectl: use a credential plugin",
		"terminal": "refused: user.exec.interactiveMode needs a terminal",
		"nobody":   "invalid kubeconfig: context.user is not in the list of users",
	} {
		_, err := own.Resolve(t.Context(), resolvertest.Named(context))
		require.ErrorContains(t, err, want)
	}
}

// TestHazardOwnRightsReachOtherFiles: nothing of it holds without Own, and a
// Secret has no such option.
func TestHazardOwnRightsReachOtherFiles(t *testing.T) {
	api := httptest.NewTLSServer(http.NotFoundHandler())
	defer api.Close()
	path := ownFiles(t, api)
	files, err := resolver.Files(resolver.FileOptions{ID: resolver.ByContext}, path)
	require.NoError(t, err)
	for _, context := range []string{"plugin", "file", "provider", "terminal"} {
		_, err := files.Resolve(t.Context(), resolvertest.Named(context))
		require.ErrorContains(t, err, "refused: ", context)
	}
	_, err = resolver.Files(resolver.FileOptions{Own: true, Allow: resolver.Allow{Exec: []string{"x"}}}, path)
	require.ErrorContains(t, err, "Own files need no Allow")
}
