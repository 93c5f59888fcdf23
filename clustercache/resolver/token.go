// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Endpoint is the address of a cluster, for conventions that keep it apart from
// the credentials.
type Endpoint struct {
	// Server is the URL: https, host, optionally port and path prefix.
	Server string
	// CA holds the trusted certificates in PEM. Default: those of the system.
	CA []byte
	// ServerName is the name in the server's certificate, if it is not the
	// host.
	ServerName string
	// Proxy is the URL of a proxy, which [Allow.Proxy] has to permit.
	Proxy string
	// InsecureTLS disables the verification of the server, which
	// [Allow.InsecureTLS] has to permit.
	InsecureTLS bool
}

var endpointFields = &fieldNames{
	server:      "server",
	serverName:  "serverName",
	ca:          "ca",
	token:       "token",
	insecure:    "insecureTLS",
	proxy:       "proxy",
	credentials: "token",
}

// FromToken makes an access from an endpoint and an untrusted bearer token, as
// strictly as [Kubeconfig].
func FromToken(endpoint Endpoint, token string, allow Allow, refs ...ObjectRef) (Access, error) {
	return endpoint.access(endpointFields, token, allow, refs)
}

func (e Endpoint) access(names *fieldNames, token string, allow Allow, refs []ObjectRef) (Access, error) {
	return description{
		fields:     names,
		server:     e.Server,
		serverName: e.ServerName,
		ca:         e.CA,
		proxy:      e.Proxy,
		insecure:   e.InsecureTLS,
		token:      token,
	}.access(allow, refs)
}

// ServiceAccountOptions describe a convention of Secrets that contain a service
// account's token and the cluster's certificates, but not its address.
type ServiceAccountOptions struct {
	SecretOptions
	// TokenKey is the key of the token. Default: "token".
	TokenKey string
	// CAKey is the key of the trusted certificates, which are used if the
	// endpoint has none. The key may be absent. Default: "ca.crt".
	CAKey string
	// Endpoint returns the endpoint of a cluster. It must not do I/O or change
	// the Secret, and always return the same for the same Secret. Required.
	Endpoint func(cluster Cluster, secret *corev1.Secret) (Endpoint, error)
}

// ServiceAccounts resolves clusters from Secrets like those that Kubernetes
// creates for service accounts. It needs a selection as [Secrets] does; Keys
// and Decode have no meaning here.
func ServiceAccounts(hub client.WithWatch, options ServiceAccountOptions) (*HubResolver, error) {
	if options.Endpoint == nil {
		return nil, errors.New("resolver: ServiceAccounts needs an Endpoint")
	}
	if options.TokenKey == "" {
		options.TokenKey = corev1.ServiceAccountTokenKey
	}
	if options.CAKey == "" {
		options.CAKey = corev1.ServiceAccountRootCAKey
	}
	secrets := options.SecretOptions
	secrets.Decode = func(cluster Cluster, secret *corev1.Secret) (Access, error) {
		endpoint, err := options.Endpoint(cluster, secret)
		if err != nil {
			return Access{}, err
		}
		if len(endpoint.CA) == 0 {
			endpoint.CA = secret.Data[options.CAKey]
		}
		token, err := limitedValue(secret.Data, options.MaxBytes, options.TokenKey)
		if err != nil {
			return Access{}, err
		}
		return FromToken(endpoint, string(token), options.Allow, secretRef(client.ObjectKeyFromObject(secret)))
	}

	return Secrets(hub, secrets)
}

// limitedValue returns the value of the first key that exists.
func limitedValue(data map[string][]byte, maxBytes int, keys ...string) ([]byte, error) {
	value, err := firstValue(data, keys...)
	if err != nil {
		return nil, err
	}
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	if len(value) > maxBytes {
		return nil, tooBig("", maxBytes)
	}
	return value, nil
}
