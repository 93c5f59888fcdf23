// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func load(t testing.TB, data []byte, allow resolver.Allow) resolver.Access {
	t.Helper()
	access, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{Allow: allow})
	require.NoError(t, err)
	return access
}

// certConfig uses every field of the strict list.
func certConfig(ca, client int, token string) []byte {
	all := resolvertest.Identities()
	return resolvertest.Kubeconfig(
		"server: 'https://c.example:6443/k8s/c-1', tls-server-name: n.example, disable-compression: "+
			"true, certificate-authority-data: "+resolvertest.Base64(all[ca].Cert),
		"token: "+token+", client-certificate-data: "+resolvertest.Base64(all[client].Cert)+", client-key-data: "+
			resolvertest.Base64(all[client].Key))
}

func TestKubeconfigKeepsWhatTheListHas(t *testing.T) {
	access := load(t, certConfig(0, 1, resolvertest.CanaryToken), resolver.Allow{})
	config := access.Config()
	requireOnlyAllowed(t, config)
	all := resolvertest.Identities()
	require.Equal(t, "https://c.example:6443/k8s/c-1", config.Host)
	require.Equal(t, resolvertest.CanaryToken, config.BearerToken)
	require.Equal(t, "n.example", config.ServerName)
	require.True(t, config.DisableCompression)
	require.Equal(t, all[0].Cert, config.CAData)
	require.Equal(t, all[1].Cert, config.CertData)
	require.Equal(t, all[1].Key, config.KeyData)
	require.Equal(t, resolvertest.NotAfter, access.Expiry())
}

func TestKubeconfigSelectsTheContext(t *testing.T) {
	data := []byte(`
contexts:
- {name: a, context: {cluster: a, user: a}}
- {name: b, context: {cluster: b, user: exec}}
- {name: c, context: {cluster: a}}
- {name: e, context: {cluster: a, user: e}}
clusters: [{name: a, cluster: {server: "https://a.example"}}, {name: b, cluster: {server: "https://b.example"}}]
users: [{name: a, user: {token: t}}, {name: exec, user: {exec: {command: x, apiVersion: v1}}}]
extensions: [{name: x, extension: {a: b}}]
unknown: {exec: x}
`)
	for name, want := range map[string]string{
		"a": "",
		"b": "refused: user.exec is not allowed; Allow.Exec would permit it",
		"c": "refused: user has no credentials, and anonymous access is not allowed; " +
			"Allow.Anonymous would permit it",
		"d": "invalid kubeconfig: context is not in the list of contexts",
		"e": "invalid kubeconfig: context.user is not in the list of users",
		"":  "invalid kubeconfig: current-context is not set, and there is not exactly one context",
	} {
		access, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{Context: name})
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err, "what other contexts hold does not matter")
		require.Equal(t, "https://a.example", access.Config().Host)
	}
	access, err := resolver.Kubeconfig(append(data, "current-context: a\n"...), resolver.KubeconfigOptions{})
	require.NoError(t, err)
	require.Equal(t, "t", access.Config().BearerToken)
}

// clientcmd looks up empty names like any others. Cluster API's envtest helper
// writes users without a name.
func TestKubeconfigEmptyNamesAreNames(t *testing.T) {
	for name, test := range map[string]struct{ contexts, clusters, users string }{
		"user":   {"{name: '@c', context: {cluster: c, user: ''}}", "c", "''"},
		"absent": {"{name: '@c', context: {cluster: c}}", "c", "''"},
		"cluster": {"{name: '@c', context: {cluster: '', user: u}}, {name: d, context: {cluster: d, user: d}}", "''",
			"u"},
		"all": {"{name: '', context: {}}, {name: d, context: {cluster: d, user: d}}", "''", "''"},
	} {
		t.Run(name, func(t *testing.T) {
			current := "current-context: '@c'\n"
			if name == "all" {
				current = ""
			}
			data := fmt.Appendf(nil, `%sapiVersion: v1
kind: Config
contexts: [%s]
clusters: [{name: %s, cluster: {server: "https://c.example"}}, {name: d, cluster: {server: "https://d.example"}}]
users: [{name: %s, user: {token: t}}, {name: d, user: {token: d}}]
`, current, test.contexts, test.clusters, test.users)
			config := load(t, data, resolver.Allow{}).Config()
			require.Equal(t, "https://c.example t", config.Host+" "+config.BearerToken)

			want, err := clientcmd.RESTConfigFromKubeConfig(data)
			require.NoError(t, err)
			require.Equal(t, want.Host+" "+want.BearerToken, config.Host+" "+config.BearerToken, "as clientcmd has it")
		})
	}
}

// The error for a description without credentials names the missing field, and
// such a description is used only if the operator permits it.
func TestHazardAnonymousAccessIsNeverSilent(t *testing.T) {
	anonymous := resolver.Allow{Anonymous: true}
	for name, make := range map[string]func(resolver.Allow) (resolver.Access, error){
		"user": func(allow resolver.Allow) (resolver.Access, error) {
			return resolver.Kubeconfig(resolvertest.Kubeconfig("server: 'https://c.example'", ""),
				resolver.KubeconfigOptions{Allow: allow})
		},
		"token": func(allow resolver.Allow) (resolver.Access, error) {
			return resolver.FromToken(resolver.Endpoint{Server: "https://c.example"}, " \n", allow)
		},
	} {
		_, err := make(resolver.Allow{Impersonation: true})
		refused, ok := errors.AsType[*resolver.RefusedError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, name, refused.Field)
		access, err := make(anonymous)
		require.NoError(t, err)
		require.Empty(t, access.Config().BearerToken)
	}
}

func TestAllowPermitsEachThingByItself(t *testing.T) {
	const server = "server: 'https://c.example'"
	exec := "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks], " +
		"env: [{name: AWS_PROFILE, value: p}], interactiveMode: IfAvailable}"
	for name, test := range map[string]struct {
		cluster, user string
		allow         resolver.Allow
		check         func(*rest.Config) bool
	}{
		"insecure": {server + ", insecure-skip-tls-verify: true", "token: t", resolver.Allow{InsecureTLS: true},
			func(c *rest.Config) bool { return c.Insecure }},
		"http": {"server: 'http://c.example'", "token: t", resolver.Allow{HTTP: true}, func(c *rest.Config) bool {
			return c.Host == "http://c.example"
		}},
		"basic": {server, "username: u, password: p", resolver.Allow{BasicAuth: true}, func(c *rest.Config) bool {
			return c.Username+c.Password == "up"
		}},
		"act-as": {server, "token: t, as: u, as-groups: [g]", resolver.Allow{Impersonation: true},
			func(c *rest.Config) bool { return c.Impersonate.UserName+c.Impersonate.Groups[0] == "ug" }},
		"proxy": {server + ", proxy-url: 'socks5://p.example:1080'", "token: t", resolver.Allow{Proxy: true},
			func(c *rest.Config) bool {
				u, err := c.Proxy(&http.Request{URL: &url.URL{Host: "c.example"}})
				return err == nil && u.Host == "p.example:1080"
			}},
		"exec": {server, exec, resolver.Allow{Exec: []string{"aws"}, ExecEnv: []string{"AWS_PROFILE"}},
			func(c *rest.Config) bool {
				p := c.ExecProvider
				return p.Command == "aws" && p.StdinUnavailable && p.InteractiveMode == api.NeverExecInteractiveMode &&
					p.PluginPolicy.PolicyType == api.PluginPolicyAllowlist &&
					p.PluginPolicy.Allowlist[0].Command == "aws"
			}},
	} {
		t.Run(name, func(t *testing.T) {
			data := resolvertest.Kubeconfig(test.cluster, test.user)
			_, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{})
			_, refused := errors.AsType[*resolver.RefusedError](err)
			require.True(t, refused, "%v", err)
			require.True(t, test.check(load(t, data, test.allow).Config()))
		})
	}
	_, err := resolver.Kubeconfig(resolvertest.Kubeconfig(server, exec),
		resolver.KubeconfigOptions{Allow: resolver.Allow{Exec: []string{"aws"}}})
	require.EqualError(t, err,
		"refused: user.exec.env sets a variable that is not allowed; Allow.ExecEnv would permit it")
	_, err = resolver.Kubeconfig(resolvertest.Kubeconfig(server, exec),
		resolver.KubeconfigOptions{Allow: resolver.Allow{Exec: []string{"/usr/bin/aws"}}})
	require.EqualError(t, err, "refused: user.exec is not allowed; Allow.Exec would permit it")
}

func TestEnvironmentProxyIsNeverUsedUnlessAllowed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://evil.example:3128")
	request := &http.Request{URL: &url.URL{Scheme: "https", Host: "c.example"}}
	static, err := resolver.NewAccess(&rest.Config{Host: "https://c.example"})
	require.NoError(t, err)
	for _, access := range []resolver.Access{static, load(t, resolvertest.TokenConfig("t"), resolver.Allow{})} {
		proxy, err := access.Config().Proxy(request)
		require.NoError(t, err)
		require.Nil(t, proxy)
	}
	require.NotNil(t, load(t, resolvertest.TokenConfig("t"), resolver.Allow{ProxyFromEnvironment: true}).Config().Proxy)
}

func TestRevisionIsOfMeaningNotOfBytes(t *testing.T) {
	all := resolvertest.Identities()
	base := resolver.Endpoint{Server: "https://c.example/k8s", CA: append(bytes.Clone(all[0].Cert), all[1].Cert...)}
	revision := func(e resolver.Endpoint, token string) string {
		access, err := resolver.FromToken(e, token, resolver.Allow{})
		require.NoError(t, err)
		return access.Revision()
	}
	want := revision(base, "t")
	require.Len(t, want, 64)
	for _, server := range []string{"https://C.example/k8s", "https://c.example:443/k8s/", "HTTPS://c.example/k8s"} {
		same := base
		same.Server = server
		require.Equal(t, want, revision(same, "t"), server)
	}
	other := base
	other.CA = append([]byte("# comment\n\n"),
		append(bytes.Clone(all[1].Cert), append(all[0].Cert, all[1].Cert...)...)...)
	require.Equal(t, want, revision(other, " t\n"),
		"order and repetition of authorities, and white space, mean nothing")

	for _, changed := range []resolver.Endpoint{
		{Server: "https://c.example/k8", CA: base.CA}, {Server: "https://d.example/k8s", CA: base.CA},
		{Server: "https://c.example:444/k8s", CA: base.CA}, {Server: base.Server, CA: all[0].Cert},
		{Server: base.Server}, {Server: base.Server, CA: base.CA, ServerName: "n"},
	} {
		require.NotEqual(t, want, revision(changed, "t"))
	}
	require.NotEqual(t, want, revision(base, "u"))
}

func TestDiffTellsPartsApart(t *testing.T) {
	base := load(t, certConfig(0, 0, "t"), resolver.Allow{})
	require.Zero(t, resolver.Diff(base, load(t, certConfig(0, 0, "t"), resolver.Allow{})))
	require.Equal(t, "none", resolver.Diff(base, base).String())
	require.Equal(t, resolver.ChangedToken, resolver.Diff(base, load(t, certConfig(0, 0, "u"), resolver.Allow{})))
	require.Equal(t, resolver.ChangedTrust, resolver.Diff(base, load(t, certConfig(1, 0, "t"), resolver.Allow{})))
	change := resolver.Diff(base, load(t, certConfig(0, 1, "u"), resolver.Allow{}))
	require.Equal(t, resolver.ChangedToken|resolver.ChangedClientCert, change)
	require.Equal(t, "token, client certificate", change.String())
	require.True(t, change.Has(resolver.ChangedToken))
	require.False(t, change.Has(resolver.ChangedToken|resolver.ChangedProxy))

	one := load(t, resolvertest.TokenConfig("t"), resolver.Allow{})
	moved := load(t, resolvertest.Kubeconfig("server: 'https://d.example'", "token: t"), resolver.Allow{})
	require.Equal(t, resolver.ChangedEndpoint, resolver.Diff(one, moved))
	allow := resolver.Allow{Proxy: true, Impersonation: true}
	proxied := load(t, resolvertest.Kubeconfig("server: 'https://c.example', proxy-url: 'http://p.example'",
		"token: t"), allow)
	require.Equal(t, resolver.ChangedProxy, resolver.Diff(one, proxied))
	other := load(t, resolvertest.Kubeconfig("server: 'https://c.example', proxy-url: 'http://q.example'",
		"token: t"), allow)
	require.Equal(t, resolver.ChangedProxy, resolver.Diff(proxied, other))
	acting := load(t, resolvertest.Kubeconfig("server: 'https://c.example'", "token: t, as: u"), allow)
	require.Equal(t, resolver.ChangedOther, resolver.Diff(one, acting))
	require.NotZero(t, resolver.Diff(resolver.Access{}, one))
	require.Zero(t, resolver.Diff(resolver.Access{}, resolver.Access{}))
}

func TestConfigIsACopy(t *testing.T) {
	access := load(t, certConfig(0, 0, "t"), resolver.Allow{})
	config := access.Config()
	config.BearerToken, config.Host = "x", "x"
	clear(config.CAData)
	clear(config.KeyData)
	clear(config.NextProtos)
	requireOnlyAllowed(t, access.Config())
	require.Equal(t, resolvertest.Identities()[0].Cert, access.Config().CAData)
	require.Equal(t, resolvertest.Identities()[0].Key, access.Config().KeyData)
	require.Nil(t, resolver.Access{}.Config())
	require.Empty(t, resolver.Access{}.Revision())
	require.Equal(t, "Access{}", resolver.Access{}.String())
}

func TestNewAccessMakesAConfigSafeForWatches(t *testing.T) {
	given := &rest.Config{Host: "c.example", Timeout: time.Minute, UserAgent: "me", BearerTokenFile: "/some/file"}
	access, err := resolver.NewAccess(given, resolver.ObjectRef{Kind: "Thing", Name: "x"})
	require.NoError(t, err)
	config := access.Config()
	require.Zero(t, config.Timeout)
	require.Equal(t, "me", config.UserAgent)
	require.Equal(t, "/some/file", config.BearerTokenFile)
	require.True(t, access.Trusted())
	require.Equal(t, []resolver.ObjectRef{{Kind: "Thing", Name: "x"}}, access.Refs())
	require.Equal(t, time.Minute, given.Timeout, "the given one is not changed")
	config.BearerTokenFile = ""
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	require.NotEqual(t, http.DefaultTransport, transport, "no process-wide transport")
	_, err = resolver.NewAccess(nil)
	require.Error(t, err)
	_, err = resolver.NewAccess(&rest.Config{Host: "https://" + resolvertest.CanaryPassword + ":x@c%zz"})
	require.Error(t, err)
	resolvertest.RequireNoCanary(t, err.Error())
}

func TestExpiryIsTheEarlierOne(t *testing.T) {
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
	}
	soon := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for token, want := range map[string]time.Time{
		jwt(fmt.Sprintf(`{"exp":%d}`, soon.Unix())):                                   soon,
		jwt(fmt.Sprintf(`{"exp":%d.5}`, soon.Unix())):                                 soon,
		jwt(fmt.Sprintf(`{"exp":%d}`, resolvertest.NotAfter.AddDate(9, 0, 0).Unix())): resolvertest.NotAfter,
		jwt(`{"exp":1e300}`):  resolvertest.NotAfter,
		jwt(`{"exp":-1}`):     resolvertest.NotAfter,
		jwt(`{"exp":"soon"}`): resolvertest.NotAfter,
		jwt(`{}`):             resolvertest.NotAfter,
		"a.b.c":               resolvertest.NotAfter,
		"opaque":              resolvertest.NotAfter,
	} {
		require.True(t, want.Equal(load(t, certConfig(0, 0, token), resolver.Allow{}).Expiry()), token)
	}
	require.Zero(t, load(t, resolvertest.TokenConfig("opaque"), resolver.Allow{}).Expiry())
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	allow := resolver.Allow{Proxy: true, BasicAuth: true}
	accesses := []resolver.Access{
		load(t, certConfig(0, 0, resolvertest.CanaryToken), allow),
		load(t, resolvertest.Kubeconfig("server: 'https://c.example', proxy-url: 'http://u:"+
			resolvertest.CanaryPassword+"@p.example'", "username: u, password: "+resolvertest.CanaryPassword), allow),
	}
	for _, access := range accesses {
		type around struct {
			Public  resolver.Access
			private resolver.Access
			pointer *resolver.Access
			list    []resolver.Access
			byName  map[string]resolver.Access
			any     any
		}
		in := around{access, access, &access, []resolver.Access{access},
			map[string]resolver.Access{"a": access}, access}
		var out bytes.Buffer
		for _, value := range []any{access, &access, in, &in, []any{in}, struct{ a any }{access}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p",
				"%t", "%10.3v", "%U"} {
				_, _ = fmt.Fprintf(&out, verb+"\n", value)
			}
			text, err := json.Marshal(value)
			require.NoError(t, err)
			out.Write(text)
			text, err = yaml.Marshal(value)
			require.NoError(t, err)
			out.Write(text)
			logger := funcr.New(func(prefix, args string) { out.WriteString(prefix + args) }, funcr.Options{})
			logger.Info("access", "access", value)
			logger = funcr.NewJSON(func(text string) { out.WriteString(text) }, funcr.Options{})
			logger.Info("access", "access", value)
			logger.Error(fmt.Errorf("with %v", value), "access")
		}
		require.NotEmpty(t, out.String())
		resolvertest.RequireNoCanary(t, out.String())
		require.NotContains(t, out.String(), access.Config().Host)
	}
}
