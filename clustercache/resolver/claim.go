// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

// claim is the content of a description of a cluster, in any convention, before
// the policy is applied. It holds everything that can become part of an access:
// content without a field here is never used.
type claim struct {
	fields             *fieldNames
	server             string
	serverName         string
	ca, cert, key      []byte
	token              string
	insecure           bool
	disableCompression bool
	proxy              string
	username, password string
	impersonate        rest.ImpersonationConfig
	exec               *api.ExecConfig
}

// fieldNames holds the names that a convention uses for the parts of a claim,
// for errors.
type fieldNames struct {
	server, serverName, ca, cert, key, token, insecure, proxy, username, impersonate, exec, credentials string
}

// access checks the claim against the policy and builds an access from it.
func (c claim) access(allow Allow, refs []ObjectRef) (Access, error) {
	server, err := checkServer(c.fields.server, c.server, allow.HTTP)
	if err != nil {
		return Access{}, err
	}
	config := &rest.Config{Host: server, DisableCompression: c.disableCompression}
	for _, step := range []func(Allow, *rest.Config) error{
		c.trust,
		c.certificate,
		c.bearer,
		c.basic,
		c.impersonates,
		c.plugin,
		c.via,
		c.authenticates,
	} {
		if err := step(allow, config); err != nil {
			return Access{}, err
		}
	}

	return newAccess(config, c.proxy, refs)
}

// trust decides how the server is verified.
func (c claim) trust(allow Allow, config *rest.Config) error {
	if c.insecure {
		if !allow.InsecureTLS {
			return refused(c.fields.insecure, "is not allowed")
		}
		if len(c.ca) > 0 {
			return invalid(c.fields.insecure, "contradicts "+c.fields.ca)
		}
		config.Insecure = true
	}

	if len(c.ca) > 0 {
		if !x509.NewCertPool().AppendCertsFromPEM(c.ca) {
			return invalid(c.fields.ca, "holds no certificate")
		}
		config.CAData = c.ca
	}

	if c.serverName != "" && checkHost(c.fields.serverName, c.serverName) != nil {
		return invalid(c.fields.serverName, "is not a host name")
	}
	config.ServerName = c.serverName
	return nil
}

// certificate adds a client certificate with its key; both must be present, and
// match.
func (c claim) certificate(_ Allow, config *rest.Config) error {
	switch {
	case len(c.cert) == 0 && len(c.key) == 0:
		return nil
	case len(c.cert) == 0:
		return invalid(c.fields.cert, "is missing, although there is a key")
	case len(c.key) == 0:
		return invalid(c.fields.key, "is missing, although there is a certificate")
	}

	if _, err := tls.X509KeyPair(c.cert, c.key); err != nil {
		return invalid(c.fields.cert, "and "+c.fields.key+" are not a pair of PEM blocks that belong together")
	}
	config.CertData, config.KeyData = c.cert, c.key
	return nil
}

// bearer adds a token.
func (c claim) bearer(_ Allow, config *rest.Config) error {
	// Secrets made from files often end in a line feed, which no header may
	// contain.
	token := strings.TrimSpace(c.token)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return invalid(c.fields.token, "has characters that no token has")
	}
	config.BearerToken = token
	return nil
}

// basic adds a user name with a password. client-go creates no client if a
// token is set besides, and sends no password without a name: such requests
// would be anonymous.
func (c claim) basic(allow Allow, config *rest.Config) error {
	switch {
	case c.username == "" && c.password == "":
		return nil
	case !allow.BasicAuth:
		return refused(c.fields.username, "and password are not allowed")
	case c.username == "":
		return invalid(c.fields.username, "is missing, although there is a password")
	case strings.Contains(c.username, ":"):
		return invalid(c.fields.username, "has a colon, which would begin the password")
	case config.BearerToken != "":
		return invalid(c.fields.username, "contradicts "+c.fields.token)
	}

	config.Username, config.Password = c.username, c.password
	return nil
}

// impersonates adds another identity, which becomes headers of each request.
// The API server refuses groups and other attributes without a user.
func (c claim) impersonates(allow Allow, config *rest.Config) error {
	who := c.impersonate
	values := append([]string{who.UserName, who.UID}, who.Groups...)
	for _, extra := range who.Extra {
		values = append(values, extra...)
	}

	switch {
	case who.UserName == "" && who.UID == "" && len(who.Groups) == 0 && len(who.Extra) == 0:
		return nil
	case !allow.Impersonation:
		return refused(c.fields.impersonate, "is not allowed")
	case who.UserName == "":
		return invalid(c.fields.impersonate, "is missing, although it is said what else to impersonate")
	case !slices.ContainsFunc(values, isNoHeader):
		config.Impersonate = who
		return nil
	}

	return invalid(c.fields.impersonate, "and what goes with it have characters that no header has")
}

func isNoHeader(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }

// plugin adds a credential plugin that is on the list. Its policy is repeated
// for client-go, so that no later step can widen it.
func (c claim) plugin(allow Allow, config *rest.Config) error {
	if c.exec == nil {
		return nil
	}
	if !slices.Contains(allow.Exec, c.exec.Command) || c.exec.Command == "" {
		return refused(c.fields.exec, "is not allowed")
	}
	for _, env := range c.exec.Env {
		if !slices.Contains(allow.ExecEnv, env.Name) {
			return refused(c.fields.exec+".env", "sets a variable that is not allowed")
		}
	}
	if err := c.canRun(); err != nil {
		return err
	}
	config.ExecProvider = &api.ExecConfig{
		Command:            c.exec.Command,
		Args:               c.exec.Args,
		Env:                c.exec.Env,
		APIVersion:         c.exec.APIVersion,
		ProvideClusterInfo: c.exec.ProvideClusterInfo,
		InteractiveMode:    api.NeverExecInteractiveMode,
		StdinUnavailable:   true,
		PluginPolicy: api.PluginPolicy{
			PolicyType: api.PluginPolicyAllowlist,
			Allowlist:  []api.AllowlistEntry{{Command: c.exec.Command}},
		},
	}

	return nil
}

// canRun refuses a plugin for which client-go would create no client, or which
// the operating system would not start.
func (c claim) canRun() error {
	for _, env := range c.exec.Env {
		if env.Name == "" || strings.ContainsAny(env.Name, "=\x00") || strings.Contains(env.Value, "\x00") {
			return invalid(c.fields.exec+".env", "has a variable without a name, or with characters that no variable has")
		}
	}
	if slices.ContainsFunc(c.exec.Args, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
		return invalid(c.fields.exec+".args", "has a NUL byte")
	}
	if !slices.Contains(pluginVersions, c.exec.APIVersion) {
		return invalid(c.fields.exec+".apiVersion", "is none that client-go knows")
	}
	switch c.exec.InteractiveMode {
	case api.AlwaysExecInteractiveMode:
		return refused(c.fields.exec+".interactiveMode", "needs a terminal")
	case api.NeverExecInteractiveMode, api.IfAvailableExecInteractiveMode, "":
		return nil
	}

	return invalid(c.fields.exec+".interactiveMode", "is none that client-go knows")
}

// pluginVersions are the supported versions of the plugin protocol.
var pluginVersions = []string{clientauthv1.SchemeGroupVersion.String(), clientauthv1beta1.SchemeGroupVersion.String()}

// authenticates refuses an access without any credentials. Such a description
// is far more often a mistake than intended, and the mistake would go
// unnoticed: many API servers answer anonymous requests well enough to look
// healthy.
func (c claim) authenticates(allow Allow, config *rest.Config) error {
	if allow.Anonymous || config.BearerToken != "" || config.Username != "" || config.Password != "" ||
		len(config.CertData) > 0 || config.ExecProvider != nil {
		return nil
	}
	return refused(c.fields.credentials, "has no credentials, and anonymous access is not allowed")
}

// via decides whether connections use a proxy, and which.
func (c claim) via(allow Allow, config *rest.Config) error {
	if c.proxy == "" {
		if allow.ProxyFromEnvironment {
			config.Proxy = http.ProxyFromEnvironment
		}
		return nil
	}

	if !allow.Proxy {
		return refused(c.fields.proxy, "is not allowed")
	}
	u, err := checkProxy(c.fields.proxy, c.proxy)
	if err != nil {
		return err
	}
	config.Proxy = http.ProxyURL(u)

	return nil
}
