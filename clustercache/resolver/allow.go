// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

// Allow lists what the operator permits an access description to use. The zero
// value refuses everything that could run a process, read a file, weaken TLS,
// use another identity or connect through another host.
//
// The author of a description decides what it asks for, so grant for Secrets
// only what every author of such a Secret may do with the operator's own
// process and network.
type Allow struct {
	// Exec lists the credential plugins that may run, by exactly the command
	// that the description names. The description chooses the arguments, and
	// what the plugin gets to know of the cluster: list no command that is
	// harmful with the wrong ones. A ClusterCache kills one that runs for 15 s.
	// Default: none.
	Exec []string
	// ExecEnv lists the names of environment variables that a description may
	// set for a plugin. Many variables make a harmless program run another one
	// (LD_PRELOAD, AWS_CONFIG_FILE). Default: none.
	ExecEnv []string
	// Files is a directory. References to files below it are read once,
	// together with the description, and become data of the access; links that
	// lead out of it are refused. Default: no file is read.
	Files string
	// InsecureTLS permits descriptions that disable the verification of the
	// server's certificate.
	InsecureTLS bool
	// HTTP permits servers without TLS.
	HTTP bool
	// Proxy permits descriptions that name a proxy. A dial policy then sees
	// only the proxy's address.
	Proxy bool
	// ProxyFromEnvironment makes connections without a proxy of their own use
	// the proxy of the process environment, as client-go does by default.
	// Default: a direct connection.
	ProxyFromEnvironment bool
	// Impersonation permits descriptions that impersonate another user.
	Impersonation bool
	// BasicAuth permits user names with passwords.
	BasicAuth bool
	// Anonymous permits descriptions without credentials: no token, client
	// certificate, password or plugin. Default: they are refused, since an API
	// server that answers anonymous requests would look like one that accepted
	// credentials.
	Anonymous bool
	// InCluster permits Argo CD's description of the cluster that Argo CD runs
	// in. It stands for the operator's own service account in its own cluster.
	InCluster bool
}

// DefaultMaxBytes is the largest kubeconfig, or single value of a Secret, that
// is read by default: 256 KiB.
const DefaultMaxBytes = 256 << 10
