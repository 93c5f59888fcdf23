// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// Kubeconfig returns a kubeconfig with a single context that contains the
// server, CA, client certificate and token of config. It holds all data inline
// and names no file.
func Kubeconfig(config *rest.Config) []byte {
	const name = "testenv"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
			TLSServerName:            config.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		panic(fmt.Sprintf("testenv: encode a kubeconfig: %v", err))
	}
	return content
}

// configFor returns a config for one server, without client-side rate limiting,
// which would only slow tests down. It shares no memory with the arguments.
func configFor(addr string, ca []byte, pair certs.Pair) *rest.Config {
	return &rest.Config{
		Host: "https://" + addr,
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: slices.Clone(ca), CertData: slices.Clone(pair.Cert), KeyData: slices.Clone(pair.Key),
		},
	}
}
