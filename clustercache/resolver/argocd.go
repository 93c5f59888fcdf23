// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ArgoCDOptions describe the clusters of an Argo CD installation.
type ArgoCDOptions struct {
	HubOptions
	// ID returns the cluster that a Secret describes, or false to ignore the
	// Secret. If two Secrets describe one cluster, the older one wins. Default:
	// the Secret's name, without namespace, which is unique; [ArgoCDName] is
	// more readable.
	ID func(secret *corev1.Secret) (Cluster, bool)
}

// ArgoCDName is an ID for [ArgoCDOptions]. It returns the name that Argo CD
// displays, or the Secret's own if there is none. Argo CD does not keep display
// names unique.
func ArgoCDName(secret *corev1.Secret) (Cluster, bool) {
	if secret == nil {
		return Cluster{}, false
	}
	if name := string(secret.Data["name"]); name != "" {
		return Cluster{Name: name}, true
	}
	return Cluster{Name: secret.Name}, true
}

// argoCDInCluster is the server URL by which Argo CD refers to its own cluster.
const argoCDInCluster = "https://kubernetes.default.svc"

// ArgoCD resolves clusters from Argo CD's cluster Secrets: those with the label
// argocd.argoproj.io/secret-type=cluster, by default in the namespace argocd,
// with the keys "server" and "config". A Secret that refers to Argo CD's own
// cluster is refused unless [Allow.InCluster] permits it, because a Secret
// labeled by mistake would silently become the hub. Argo CD's AWS
// authentication is the credential plugin argocd-k8s-auth, which [Allow.Exec]
// has to permit.
func ArgoCD(hub client.WithWatch, options ArgoCDOptions) (*HubResolver, error) {
	if options.Namespace == "" {
		options.Namespace = "argocd"
	}
	options.Selector = withLabel(options.Selector, "argocd.argoproj.io/secret-type", "cluster")
	secrets := SecretOptions{HubOptions: options.HubOptions, ID: options.ID}
	if secrets.ID == nil {
		secrets.ID = byName
	}
	described := secrets.convention(options.build)
	described.nameField = "name"
	if options.ID == nil {
		described.key = keyByName(options.Namespace)
	}

	return newHubResolver(hub, described, options.HubOptions)
}

var argoCDFields = &fieldNames{
	server:      "server",
	serverName:  "config.tlsClientConfig.serverName",
	ca:          "config.tlsClientConfig.caData",
	cert:        "config.tlsClientConfig.certData",
	key:         "config.tlsClientConfig.keyData",
	insecure:    "config.tlsClientConfig.insecure",
	token:       "config.bearerToken",
	username:    "config.username",
	proxy:       "config.proxyUrl",
	exec:        "config.execProviderConfig",
	credentials: "config",
}

// argoCDConfig is the JSON under the key "config". Fields that Argo CD may add
// later have no effect here.
type argoCDConfig struct {
	Username        string `json:"username"`
	Password        string `json:"password"`
	BearerToken     string `json:"bearerToken"`
	TLSClientConfig struct {
		Insecure   bool   `json:"insecure"`
		ServerName string `json:"serverName"`
		CertData   []byte `json:"certData"`
		KeyData    []byte `json:"keyData"`
		CAData     []byte `json:"caData"`
	} `json:"tlsClientConfig"`
	AWSAuthConfig *struct {
		ClusterName string `json:"clusterName"`
		RoleARN     string `json:"roleARN"`
		Profile     string `json:"profile"`
	} `json:"awsAuthConfig"`
	ExecProviderConfig *struct {
		Command    string            `json:"command"`
		Args       []string          `json:"args"`
		Env        map[string]string `json:"env"`
		APIVersion string            `json:"apiVersion"`
	} `json:"execProviderConfig"`
	ProxyURL           string `json:"proxyUrl"`
	DisableCompression bool   `json:"disableCompression"`
}

func (o ArgoCDOptions) build(in input) (Access, error) {
	data := in.primary.(*corev1.Secret).Data
	server := strings.TrimRight(strings.TrimSpace(string(data["server"])), "/")
	if server == "" {
		return Access{}, missingKey("server")
	}
	if server == argoCDInCluster {
		if !o.Allow.InCluster {
			return Access{}, forbidden("server", "is Argo CD's own cluster, which is not allowed", "InCluster")
		}
		return podEnvironment().access(in.ref)
	}

	// An absent or empty config is valid, and anonymous.
	raw, err := limitedValue(data, o.MaxBytes, "config")
	if err != nil && !errors.Is(err, ErrKeyMissing) {
		return Access{}, err
	}
	var config argoCDConfig
	if len(bytes.TrimSpace(raw)) > 0 && json.Unmarshal(raw, &config) != nil {
		return Access{}, invalid("config", "is not the JSON of an Argo CD cluster") // the cause could quote it
	}
	described := config.description()
	described.server = server

	return described.access(o.Allow, []ObjectRef{in.ref})
}

// description follows Argo CD's order of preference: AWS, then a plugin, then
// static credentials. Credentials that are not preferred are still part of the
// description, so that policy refuses them rather than ignores them.
func (c argoCDConfig) description() description {
	out := description{
		fields:             argoCDFields,
		serverName:         c.TLSClientConfig.ServerName,
		ca:                 c.TLSClientConfig.CAData,
		cert:               c.TLSClientConfig.CertData,
		key:                c.TLSClientConfig.KeyData,
		insecure:           c.TLSClientConfig.Insecure,
		token:              c.BearerToken,
		username:           c.Username,
		password:           c.Password,
		proxy:              c.ProxyURL,
		disableCompression: c.DisableCompression,
	}
	switch {
	case c.AWSAuthConfig != nil:
		args := []string{"aws", "--cluster-name", c.AWSAuthConfig.ClusterName}
		if c.AWSAuthConfig.RoleARN != "" {
			args = append(args, "--role-arn", c.AWSAuthConfig.RoleARN)
		}
		if c.AWSAuthConfig.Profile != "" {
			args = append(args, "--profile", c.AWSAuthConfig.Profile)
		}
		out.exec = &api.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1beta1",
			Command:    "argocd-k8s-auth",
			Args:       args,
		}
	case c.ExecProviderConfig != nil:
		out.exec = &api.ExecConfig{
			APIVersion: c.ExecProviderConfig.APIVersion,
			Command:    c.ExecProviderConfig.Command,
			Args:       c.ExecProviderConfig.Args,
		}
		for _, name := range slices.Sorted(maps.Keys(c.ExecProviderConfig.Env)) {
			out.exec.Env = append(out.exec.Env, api.ExecEnvVar{Name: name, Value: c.ExecProviderConfig.Env[name]})
		}
	}

	return out
}
