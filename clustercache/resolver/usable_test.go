// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http/httpguts"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// everything permits all that an operator can permit without naming files.
var everything = resolver.Allow{
	Exec:          []string{"plugin"},
	ExecEnv:       []string{"", "A"},
	InsecureTLS:   true,
	HTTP:          true,
	Proxy:         true,
	Impersonation: true,
	BasicAuth:     true,
	Anonymous:     true,
}

// headers receives requests in place of a server, and checks them as net/http's
// transport does.
type headers struct{ t testing.TB }

func (h headers) RoundTrip(request *http.Request) (*http.Response, error) {
	for name, values := range request.Header {
		require.True(h.t, httpguts.ValidHeaderFieldName(name), "%q", name)
		for _, value := range values {
			require.True(h.t, httpguts.ValidHeaderFieldValue(value), "%q: %q", name, value)
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
}

// requireUsable fails if client-go, or net/http, refuses a configuration.
func requireUsable(t testing.TB, config *rest.Config) {
	t.Helper()
	_, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	if config.ExecProvider != nil {
		return // a request would run it
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, headers{t})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, http.NoBody)
	require.NoError(t, err)
	response, err := wrapped.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}

// TestHazardWhatIsAcceptedCanBeUsed checks that a field is refused at once by
// name if client-go would refuse it when it creates a client, or net/http when
// it sends a request; and that fields that both accept are not refused.
func TestHazardWhatIsAcceptedCanBeUsed(t *testing.T) {
	who := resolvertest.Identities()
	const server = "server: 'https://c.example'"
	pair := "client-certificate-data: " + resolvertest.Base64(who[0].Cert) + ", client-key-data: " +
		resolvertest.Base64(who[0].Key)
	plugin := func(fields string) string { return "exec: {command: plugin" + fields + "}" }
	const v1 = ", apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never"
	for name, test := range map[string]struct{ cluster, user, field string }{
		"token and password":     {server, "token: t, username: u, password: p", "user.username"},
		"token and user name":    {server, "token: t, username: u", "user.username"},
		"password alone":         {server, "password: p", "user.username"},
		"user name with a colon": {server, "username: 'a:b', password: p", "user.username"},
		"certificate without key": {server, "client-certificate-data: " + resolvertest.Base64(who[0].Cert),
			"user.client-key-data"},
		"key without certificate": {server, "client-key-data: " + resolvertest.Base64(who[0].Key),
			"user.client-certificate-data"},
		"another's key": {server, "client-certificate-data: " + resolvertest.Base64(who[0].Cert) +
			", client-key-data: " + resolvertest.Base64(who[1].Key), "user.client-certificate-data"},
		"key for a certificate": {server, "client-certificate-data: " + resolvertest.Base64(who[0].Key) +
			", client-key-data: " + resolvertest.Base64(who[0].Key), "user.client-certificate-data"},
		"authority that is none": {server + ", certificate-authority-data: " + resolvertest.Base64([]byte("none")),
			"token: t", "cluster.certificate-authority-data"},
		"authority that is a key": {server + ", certificate-authority-data: " + resolvertest.Base64(who[0].Key),
			"token: t", "cluster.certificate-authority-data"},
		"authority, unverified": {server + ", insecure-skip-tls-verify: true, certificate-authority-data: " +
			resolvertest.Base64(who[0].Cert), "token: t", "cluster.insecure-skip-tls-verify"},
		"auth provider":            {server, "auth-provider: {name: gcp}", "user.auth-provider"},
		"auth provider and plugin": {server, "auth-provider: {name: gcp}, " + plugin(v1), "user.auth-provider"},
		"plugin of no version":     {server, plugin(", interactiveMode: Never"), "user.exec.apiVersion"},
		"plugin of an old version": {server, plugin(", apiVersion: client.authentication.k8s.io/v1alpha1"),
			"user.exec.apiVersion"},
		"plugin of another group": {server, plugin(", apiVersion: v1"), "user.exec.apiVersion"},
		"plugin, mode unknown": {server,
			plugin(", apiVersion: client.authentication.k8s.io/v1, interactiveMode: Maybe"),
			"user.exec.interactiveMode"},
		"plugin, variable unnamed":  {server, plugin(v1 + ", env: [{name: '', value: v}]"), "user.exec.env"},
		"plugin, argument with NUL": {server, plugin(v1 + ", args: [\"a\\0b\"]"), "user.exec.args"},
		"plugin, variable assigned": {server, plugin(v1 + ", env: [{name: A, value: \"a\\0b\"}]"), "user.exec.env"},
		"groups of nobody":          {server, "token: t, as-groups: [g]", "user.as"},
		"uid of nobody":             {server, "token: t, as-uid: x", "user.as"},
		"extra of nobody":           {server, "token: t, as-user-extra: {k: [v]}", "user.as"},
		"user in two lines":         {server, "token: t, as: \"a\\nb\"", "user.as"},
		"uid in two lines":          {server, "token: t, as: a, as-uid: \"a\\nb\"", "user.as"},
		"group with a control":      {server, "token: t, as: a, as-groups: [\"a\\x01\"]", "user.as"},
		"extra in two lines":        {server, "token: t, as: a, as-user-extra: {k: [\"a\\rb\"]}", "user.as"},
		"extra without a name":      {server, "token: t, as: a, as-user-extra: {'': [a]}", ""},
		"token in two lines":        {server, "token: \"a\\nb\"", "user.token"},
		"server name of two":        {server + ", tls-server-name: 'a b'", "token: t", "cluster.tls-server-name"},
		"proxy of another scheme":   {server + ", proxy-url: 'ftp://p.example'", "token: t", "cluster.proxy-url"},
		"proxy without a host":      {server + ", proxy-url: '/p'", "token: t", "cluster.proxy-url"},
		"proxy, user in two lines":  {server + ", proxy-url: 'http://a%0ab:c@p.example'", "token: t", ""},
		"no server":                 {"tls-server-name: a", "token: t", "cluster.server"},
		"anonymous":                 {server, "", ""},
		"user name alone":           {server, "username: u", ""},
		"password":                  {server, "username: u, password: \"p\\n &é\"", ""},
		"certificate and token":     {server, pair + ", token: t", ""},
		"certificate and password":  {server, pair + ", username: u, password: p", ""},
		"token and plugin":          {server, "token: t, " + plugin(v1), ""},
		"password and plugin":       {server, "username: u, " + plugin(v1), ""},
		"certificate and plugin":    {server, pair + ", " + plugin(v1), ""},
		"plugin":                    {server, plugin(v1), ""},
		"plugin, beta":              {server, plugin(", apiVersion: client.authentication.k8s.io/v1beta1"), ""},
		"plugin that asks for all": {server + ", proxy-url: 'http://p.example', certificate-authority-data: " +
			resolvertest.Base64(who[0].Cert),
			plugin(v1 + ", provideClusterInfo: true, env: [{name: A, value: v}]"), ""},
		"server name, unverified": {server + ", insecure-skip-tls-verify: true, tls-server-name: a", "token: t", ""},
		"plain": {"server: 'http://c.example', certificate-authority-data: " +
			resolvertest.Base64(who[0].Cert), "token: t", ""},
		"impersonation": {server,
			"token: t, as: a, as-uid: x, as-groups: [g, é], as-user-extra: {'k/%é ': [v]}", ""},
		"impersonation, no password": {server, "as: a", ""},
		"authority and junk": {server + ", certificate-authority-data: " +
			resolvertest.Base64(append([]byte("junk\n"), who[0].Cert...)), "token: t", ""},
		"proxy": {server + ", proxy-url: 'socks5://u:p@p.example:1080'", "token: t", ""},
	} {
		t.Run(name, func(t *testing.T) {
			access, err := resolver.Kubeconfig(resolvertest.Kubeconfig(test.cluster, test.user),
				resolver.KubeconfigOptions{Allow: everything})
			if test.field == "" {
				require.NoError(t, err)
				requireUsable(t, access.Config())
				return
			}
			require.Equal(t, test.field, fieldOf(err), "%v", err)
		})
	}
}

// fieldOf returns the field that a typed error names.
func fieldOf(err error) string {
	if invalid, ok := errors.AsType[*resolver.KubeconfigError](err); ok {
		return invalid.Field
	}
	if refused, ok := errors.AsType[*resolver.RefusedError](err); ok {
		return refused.Field
	}
	return "-"
}

// FuzzWhatIsAcceptedCanBeUsed puts texts into each field of a kubeconfig.
func FuzzWhatIsAcceptedCanBeUsed(f *testing.F) {
	for field := range uint8(24) {
		for _, text := range []string{"", "a", "a\nb", "a:b", "http://p.example", "client.authentication.k8s.io/v1",
			"plugin", "true"} {
			f.Add(field, text, field+1, text)
		}
	}
	f.Fuzz(func(t *testing.T, one uint8, first string, two uint8, second string) {
		cluster, user, exec := map[string]any{"server": "https://c.example"}, map[string]any{}, map[string]any{}
		for _, set := range []struct {
			field uint8
			text  string
		}{{one, first}, {two, second}} {
			setField(cluster, user, exec, set.field, set.text)
		}
		if len(exec) > 0 {
			user["exec"] = exec
		}
		data, err := json.Marshal(map[string]any{
			"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
			"clusters": []any{map[string]any{"name": "c", "cluster": cluster}},
			"users":    []any{map[string]any{"name": "u", "user": user}},
		})
		require.NoError(t, err)
		access, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{Allow: everything})
		if err != nil {
			require.NotEqual(t, "-", fieldOf(err), "%v", err)
			return
		}
		requireUsable(t, access.Config())
	})
}

// setField sets one field of a kubeconfig by its number.
func setField(cluster, user, exec map[string]any, field uint8, text string) {
	who := resolvertest.Identities()[0]
	switch field % 24 {
	case 0:
		cluster["server"] = text
	case 1:
		cluster["tls-server-name"] = text
	case 2:
		cluster["proxy-url"] = text
	case 3:
		cluster["certificate-authority-data"] = []byte(text)
	case 4:
		cluster["insecure-skip-tls-verify"] = true
	case 5:
		user["token"] = text
	case 6:
		user["username"] = text
	case 7:
		user["password"] = text
	case 8:
		user["as"] = text
	case 9:
		user["as-uid"] = text
	case 10:
		user["as-groups"] = []string{text, "g"}
	case 11:
		user["as-user-extra"] = map[string][]string{text: {"v"}}
	case 12:
		user["as-user-extra"] = map[string][]string{"k": {text}}
	case 13:
		user["client-certificate-data"], user["client-key-data"] = who.Cert, who.Key
	case 14:
		user["client-certificate-data"] = []byte(text)
	case 15:
		user["client-key-data"] = []byte(text)
	case 16:
		user["auth-provider"] = map[string]any{"name": text}
	case 17:
		exec["command"], exec["apiVersion"], exec["interactiveMode"] = "plugin",
			"client.authentication.k8s.io/v1", "Never"
	case 18:
		exec["command"], exec["apiVersion"] = "plugin", text
	case 19:
		exec["interactiveMode"] = text
	case 20:
		exec["args"] = []string{text}
	case 21:
		exec["env"] = []any{map[string]any{"name": "A", "value": text}}
	case 22:
		exec["provideClusterInfo"] = true
	case 23:
		cluster["certificate-authority-data"] = who.Cert
	}
}
