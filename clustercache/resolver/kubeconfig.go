// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"encoding/base64"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigOptions configure how a kubeconfig is read.
type KubeconfigOptions struct {
	// Context is the name of the context to use. Default: the current context;
	// without one, the context whose name is empty, or else the only one.
	Context string
	// Allow is what the kubeconfig may use. Default: nothing that needs a
	// permission.
	Allow Allow
	// MaxBytes is the size of the largest kubeconfig that is read. Default:
	// [DefaultMaxBytes].
	MaxBytes int
}

// Kubeconfig makes an access from an untrusted kubeconfig.
//
// One context is selected, and the access is rebuilt from a list of known
// fields: server, certificate authority data, server name, client certificate
// and key data, token, compression. Anything else that the selected cluster and
// user ask for is refused with a [*RefusedError] unless opts.Allow permits it;
// other contexts, clusters and users are ignored, and extensions and unknown
// fields, which mean nothing to a connection, have no effect. No file is read
// and no process started while reading, other than files that opts.Allow.Files
// permits. Errors never quote the kubeconfig.
//
// Empty names are ordinary names, as in clientcmd: a context
// without a user uses the user whose name is empty. A user that does not exist
// is an error, and so is, unless opts.Allow.Anonymous permits it, a user
// without credentials: clientcmd would send anonymous requests in both cases.
func Kubeconfig(data []byte, opts KubeconfigOptions, refs ...ObjectRef) (Access, error) {
	config, err := parseKubeconfig(data, opts.MaxBytes)
	if err != nil {
		return Access{}, err
	}
	access, _, err := fromContext(config, opts.Context, opts.Allow, "", refs)
	return access, err
}

// kubeconfigFields holds the names that kubectl's documentation uses for the
// parts.
var kubeconfigFields = &fieldNames{
	server:      "cluster.server",
	serverName:  "cluster.tls-server-name",
	ca:          "cluster.certificate-authority-data",
	insecure:    "cluster.insecure-skip-tls-verify",
	proxy:       "cluster.proxy-url",
	cert:        "user.client-certificate-data",
	key:         "user.client-key-data",
	token:       "user.token",
	username:    "user.username",
	impersonate: "user.as",
	exec:        "user.exec",
	credentials: "user",
}

// execExtension is the extension of a cluster that a credential plugin gets
// with its other information, if it asks for that.
const execExtension = "client.authentication.k8s.io/exec"

// fromOwnContext is fromContext for a file of the person who runs the program,
// which may use everything that kubectl would.
func fromOwnContext(config *api.Config, name, dir string, refs []ObjectRef) (Access, []string, error) {
	_, user, err := pick(config, name)
	if err != nil {
		return Access{}, nil, err
	}
	if user.AuthProvider != nil {
		return Access{}, nil, refused("user.auth-provider",
			"is not supported any more, as in kubectl: use a credential plugin (user.exec), "+
				"such as gke-gcloud-auth-plugin or kubelogin")
	}
	allow := Allow{
		Files:                string(filepath.Separator),
		InsecureTLS:          true,
		HTTP:                 true,
		Proxy:                true,
		ProxyFromEnvironment: true,
		Impersonation:        true,
		BasicAuth:            true,
		Anonymous:            true,
	}
	if plugin := user.Exec; plugin != nil {
		if strings.ContainsRune(plugin.Command, filepath.Separator) && !filepath.IsAbs(plugin.Command) {
			plugin.Command = filepath.Join(dir, plugin.Command)
		}
		allow.Exec = []string{plugin.Command}
		for _, env := range plugin.Env {
			allow.ExecEnv = append(allow.ExecEnv, env.Name)
		}
	}

	access, files, err := fromContext(config, name, allow, dir, refs)
	if err == nil {
		access.open().trusted = true // not shared yet
	}
	return access, files, err
}

// parseKubeconfig bounds the cost of parsing first, then parses, and reads
// nothing else. The result must never be passed to clientcmd's next step,
// ClientConfig, which reads the files that a kubeconfig names.
func parseKubeconfig(data []byte, maxBytes int) (*api.Config, error) {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	switch {
	case len(data) > maxBytes:
		return nil, tooBig("", maxBytes)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, invalid("", "is empty")
	case bytes.IndexByte(data, 0) >= 0:
		return nil, invalid("", "has a NUL byte")
	}

	if err := checkAnchors(data); err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(data)
	switch {
	case err != nil && isEncoded(data):
		return nil, invalid("",
			"is encoded as base64 twice: under data it is encoded once, under stringData not at all")
	case err != nil:
		return nil, notKubeconfig(err)
	}
	return config, nil
}

// isEncoded reports whether data is a kubeconfig in base64, in one line or in
// several.
func isEncoded(data []byte) bool {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	return err == nil && bytes.Contains(decoded, []byte("clusters"))
}

// checkAnchors refuses a document that has an anchor. Without an anchor there
// is no alias, and without an alias a document cannot grow: 128 KiB of text
// named 80,000 times would become 10 GB of JSON inside clientcmd, and the YAML
// parser's own limit counts nodes, not bytes.
//
// Only a parser knows whether an ampersand is an anchor: passwords contain
// them, too. This parser exposes the nodes of a document without following an
// alias; the older version of it in clientcmd has the same scanner but exposes
// no nodes.
func checkAnchors(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return notKubeconfig(err)
	}
	if hasAnchor(&document) {
		return invalid("", "has a YAML anchor")
	}
	return nil
}

func hasAnchor(node *yaml.Node) bool {
	return node.Anchor != "" || node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAnchor)
}

// lineNumber finds a line number in a parser's error.
var lineNumber = regexp.MustCompile(`line \d{1,9}`)

// notKubeconfig returns the error for a document that a parser refuses. It
// omits the cause, which quotes the document: for a duplicate name even all
// users with their tokens. A line number is safe.
func notKubeconfig(cause error) error {
	reason := "is not a kubeconfig"
	if line := lineNumber.FindString(cause.Error()); line != "" {
		reason += " (" + line + ")"
	}
	return invalid("", reason)
}

// fromContext makes an access from one context, and returns the files it read
// for that. Relative paths start at dir; without dir they are refused.
func fromContext(config *api.Config, name string, allow Allow, dir string, refs []ObjectRef) (Access, []string, error) {
	cluster, user, err := pick(config, name)
	if err != nil {
		return Access{}, nil, err
	}
	if user.AuthProvider != nil {
		return Access{}, nil, refused("user.auth-provider", "is not supported")
	}
	described := description{
		fields:             kubeconfigFields,
		server:             cluster.Server,
		serverName:         cluster.TLSServerName,
		ca:                 cluster.CertificateAuthorityData,
		insecure:           cluster.InsecureSkipTLSVerify,
		disableCompression: cluster.DisableCompression,
		proxy:              cluster.ProxyURL,
		cert:               user.ClientCertificateData,
		key:                user.ClientKeyData,
		token:              user.Token,
		username:           user.Username,
		password:           user.Password,
		exec:               user.Exec,
		execInfo:           cluster.Extensions[execExtension],
		impersonate: rest.ImpersonationConfig{
			UserName: user.Impersonate,
			UID:      user.ImpersonateUID,
			Groups:   user.ImpersonateGroups,
			Extra:    user.ImpersonateUserExtra,
		},
	}
	files, err := described.readFiles(allow.Files, dir, cluster, user)
	if err != nil {
		return Access{}, files, err
	}
	access, err := described.access(allow, refs)

	return access, files, err
}

// pick selects one context and returns its cluster and user. An empty name
// selects as documented at KubeconfigOptions.Context.
func pick(config *api.Config, name string) (*api.Cluster, *api.AuthInfo, error) {
	selected, err := pickContext(config, name)
	if err != nil {
		return nil, nil, err
	}
	cluster := config.Clusters[selected.Cluster]
	if cluster == nil {
		return nil, nil, invalid("context.cluster", "is not in the list of clusters")
	}

	// The empty name is looked up like any other: Cluster API's tests and other
	// programs that write kubeconfigs create users without a name.
	user := config.AuthInfos[selected.AuthInfo]
	switch {
	case user != nil:
		return cluster, user, nil
	case selected.AuthInfo == "":
		return cluster, &api.AuthInfo{}, nil
	}

	return nil, nil, invalid("context.user", "is not in the list of users")
}

func pickContext(config *api.Config, name string) (*api.Context, error) {
	field := "context"
	if name == "" {
		name, field = config.CurrentContext, "current-context"
	}
	selected := config.Contexts[name]
	switch {
	case selected != nil:
		return selected, nil
	case name != "":
		return nil, invalid(field, "is not in the list of contexts")
	}

	for _, only := range config.Contexts {
		if only != nil && len(config.Contexts) == 1 {
			return only, nil
		}
	}

	return nil, invalid("current-context", "is not set, and there is not exactly one context")
}
