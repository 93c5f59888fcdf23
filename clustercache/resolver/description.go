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
	"k8s.io/apimachinery/pkg/runtime"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

// description is what describes a cluster, in any convention, before the policy
// is applied. It holds everything that can become part of an access: content
// without a field here is never used.
type description struct {
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
	execInfo           runtime.Object // what the cluster has for plugins
}

// fieldNames holds the names that a convention uses for the parts of a
// description, for errors.
type fieldNames struct {
	server, serverName, ca, cert, key, token, insecure, proxy, username, impersonate, exec, credentials string
}

// access checks the description against the policy and builds an access from
// it.
func (d description) access(allow Allow, refs []ObjectRef) (Access, error) {
	server, err := checkServer(d.fields.server, d.server, allow.HTTP)
	if err != nil {
		return Access{}, err
	}
	config := &rest.Config{Host: server, DisableCompression: d.disableCompression}
	for _, step := range []func(Allow, *rest.Config) error{
		d.trust,
		d.certificate,
		d.bearer,
		d.basic,
		d.impersonates,
		d.plugin,
		d.via,
		d.authenticates,
	} {
		if err := step(allow, config); err != nil {
			return Access{}, err
		}
	}

	return newAccess(config, d.proxy, nil, refs)
}

// trust decides how the server is verified.
func (d description) trust(allow Allow, config *rest.Config) error {
	if d.insecure {
		if !allow.InsecureTLS {
			return forbidden(d.fields.insecure, "is not allowed", "InsecureTLS")
		}
		if len(d.ca) > 0 {
			return invalid(d.fields.insecure, "contradicts "+d.fields.ca)
		}
		config.Insecure = true
	}

	if len(d.ca) > 0 {
		if !x509.NewCertPool().AppendCertsFromPEM(d.ca) {
			return invalid(d.fields.ca, "holds no certificate")
		}
		config.CAData = d.ca
	}

	if d.serverName != "" && checkHost(d.fields.serverName, d.serverName) != nil {
		return invalid(d.fields.serverName, "is not a host name")
	}
	config.ServerName = d.serverName
	return nil
}

// certificate adds a client certificate with its key; both must be present, and
// match.
func (d description) certificate(_ Allow, config *rest.Config) error {
	switch {
	case len(d.cert) == 0 && len(d.key) == 0:
		return nil
	case len(d.cert) == 0:
		return invalid(d.fields.cert, "is missing, although there is a key")
	case len(d.key) == 0:
		return invalid(d.fields.key, "is missing, although there is a certificate")
	}

	if _, err := tls.X509KeyPair(d.cert, d.key); err != nil {
		return invalid(d.fields.cert, "and "+d.fields.key+" are not a pair of PEM blocks that belong together")
	}
	config.CertData, config.KeyData = d.cert, d.key
	return nil
}

// bearer adds a token.
func (d description) bearer(_ Allow, config *rest.Config) error {
	// Secrets made from files often end in a line feed, which no header may
	// contain.
	token := strings.TrimSpace(d.token)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return invalid(d.fields.token, "has characters that no token has")
	}
	config.BearerToken = token
	return nil
}

// basic adds a user name with a password. client-go creates no client if a
// token is set besides, and sends no password without a name: such requests
// would be anonymous.
func (d description) basic(allow Allow, config *rest.Config) error {
	switch {
	case d.username == "" && d.password == "":
		return nil
	case !allow.BasicAuth:
		return refused(d.fields.username, "and password are not allowed")
	case d.username == "":
		return invalid(d.fields.username, "is missing, although there is a password")
	case strings.Contains(d.username, ":"):
		return invalid(d.fields.username, "has a colon, which would begin the password")
	case config.BearerToken != "":
		return invalid(d.fields.username, "contradicts "+d.fields.token)
	}

	config.Username, config.Password = d.username, d.password
	return nil
}

// impersonates adds another identity, which becomes headers of each request.
// The API server refuses groups and other attributes without a user.
func (d description) impersonates(allow Allow, config *rest.Config) error {
	who := d.impersonate
	values := append([]string{who.UserName, who.UID}, who.Groups...)
	for _, extra := range who.Extra {
		values = append(values, extra...)
	}

	switch {
	case who.UserName == "" && who.UID == "" && len(who.Groups) == 0 && len(who.Extra) == 0:
		return nil
	case !allow.Impersonation:
		return forbidden(d.fields.impersonate, "is not allowed", "Impersonation")
	case who.UserName == "":
		return invalid(d.fields.impersonate, "is missing, although it is said what else to impersonate")
	case !slices.ContainsFunc(values, isNoHeader):
		config.Impersonate = who
		return nil
	}

	return invalid(d.fields.impersonate, "and what goes with it have characters that no header has")
}

func isNoHeader(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }

// plugin adds a credential plugin that is on the list. Its policy is repeated
// for client-go, so that no later step can widen it.
func (d description) plugin(allow Allow, config *rest.Config) error {
	if d.exec == nil {
		return nil
	}
	if !slices.Contains(allow.Exec, d.exec.Command) || d.exec.Command == "" {
		return forbidden(d.fields.exec, "is not allowed", "Exec")
	}
	for _, env := range d.exec.Env {
		if !slices.Contains(allow.ExecEnv, env.Name) {
			return forbidden(d.fields.exec+".env", "sets a variable that is not allowed", "ExecEnv")
		}
	}
	if err := d.canRun(); err != nil {
		return err
	}
	config.ExecProvider = &api.ExecConfig{
		Command:            d.exec.Command,
		Args:               d.exec.Args,
		Env:                d.exec.Env,
		APIVersion:         d.exec.APIVersion,
		ProvideClusterInfo: d.exec.ProvideClusterInfo,
		InteractiveMode:    api.NeverExecInteractiveMode,
		StdinUnavailable:   true,
		PluginPolicy: api.PluginPolicy{
			PolicyType: api.PluginPolicyAllowlist,
			Allowlist:  []api.AllowlistEntry{{Command: d.exec.Command}},
		},
	}

	if d.exec.ProvideClusterInfo {
		config.ExecProvider.Config = d.execInfo
	}

	return nil
}

// canRun refuses a plugin for which client-go would create no client, or which
// the operating system would not start.
func (d description) canRun() error {
	for _, env := range d.exec.Env {
		if env.Name == "" || strings.ContainsAny(env.Name, "=\x00") || strings.Contains(env.Value, "\x00") {
			return invalid(d.fields.exec+".env",
				"has a variable without a name, or with characters that no variable has")
		}
	}
	if slices.ContainsFunc(d.exec.Args, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
		return invalid(d.fields.exec+".args", "has a NUL byte")
	}
	if !slices.Contains(pluginVersions, d.exec.APIVersion) {
		return invalid(d.fields.exec+".apiVersion", "is none that client-go knows")
	}
	switch d.exec.InteractiveMode {
	case api.AlwaysExecInteractiveMode:
		return refused(d.fields.exec+".interactiveMode", "needs a terminal")
	case api.NeverExecInteractiveMode, api.IfAvailableExecInteractiveMode, "":
		return nil
	}

	return invalid(d.fields.exec+".interactiveMode", "is none that client-go knows")
}

// pluginVersions are the supported versions of the plugin protocol.
var pluginVersions = []string{clientauthv1.SchemeGroupVersion.String(), clientauthv1beta1.SchemeGroupVersion.String()}

// authenticates refuses an access without any credentials. Such a description
// is far more often a mistake than intended, and the mistake would go
// unnoticed: many API servers answer anonymous requests well enough to look
// healthy.
func (d description) authenticates(allow Allow, config *rest.Config) error {
	if allow.Anonymous || config.BearerToken != "" || config.Username != "" || config.Password != "" ||
		len(config.CertData) > 0 || config.ExecProvider != nil {
		return nil
	}
	return forbidden(d.fields.credentials, "has no credentials, and anonymous access is not allowed", "Anonymous")
}

// via decides whether connections use a proxy, and which.
func (d description) via(allow Allow, config *rest.Config) error {
	if d.proxy == "" {
		if allow.ProxyFromEnvironment {
			config.Proxy = http.ProxyFromEnvironment
		}
		return nil
	}

	if !allow.Proxy {
		return forbidden(d.fields.proxy, "is not allowed", "Proxy")
	}
	u, err := checkProxy(d.fields.proxy, d.proxy)
	if err != nil {
		return err
	}
	config.Proxy = http.ProxyURL(u)

	return nil
}
