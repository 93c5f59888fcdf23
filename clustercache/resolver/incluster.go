// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// InClusterResolver resolves the hub from the environment of the Pod that the
// operator runs in.
type InClusterResolver struct {
	pod pod
}

var (
	_ Resolver = (*InClusterResolver)(nil)
	_ Lister   = (*InClusterResolver)(nil)
)

// InCluster resolves only the hub itself, the zero key, with the Pod's service
// account. The access names the token's file, which is read again when the
// kubelet has rotated it, so the access has no expiry; and the certificates'
// file, which is read when the access is put to use: changed certificates
// change the revision. Outside a Pod the hub is an [ErrClusterNotFound].
func InCluster() *InClusterResolver { return &InClusterResolver{pod: podEnvironment()} }

// Resolve implements [Resolver].
func (r *InClusterResolver) Resolve(_ context.Context, cluster Cluster) (Access, error) {
	if cluster != (Cluster{}) {
		return Access{}, fail(cluster, ObjectRef{}, ErrClusterNotFound)
	}
	access, err := r.pod.access()
	if err != nil {
		return Access{}, fail(cluster, ObjectRef{}, err)
	}
	return access, nil
}

// Clusters implements [Lister]: the hub, if this is a Pod.
func (r *InClusterResolver) Clusters(context.Context) ([]Cluster, error) {
	if r.pod.host == "" {
		return nil, nil
	}
	return []Cluster{{}}, nil
}

// pod is the information that Kubernetes gives a Pod about its own cluster.
type pod struct{ host, port, dir string }

// podDir is where the kubelet mounts the service account. Only tests change it.
var podDir = "/var/run/secrets/kubernetes.io/serviceaccount"

func podEnvironment() pod {
	return pod{
		host: os.Getenv("KUBERNETES_SERVICE_HOST"),
		port: os.Getenv("KUBERNETES_SERVICE_PORT"),
		dir:  podDir,
	}
}

func (p pod) access(refs ...ObjectRef) (Access, error) {
	if p.host == "" || p.port == "" {
		return Access{}, fmt.Errorf("%w: not in a Pod", ErrClusterNotFound)
	}
	token, ca := filepath.Join(p.dir, "token"), filepath.Join(p.dir, "ca.crt")
	_, err := os.Stat(token)
	certificates, caErr := os.ReadFile(ca)
	if err = errors.Join(err, caErr); err != nil {
		return Access{}, fmt.Errorf("%w: the Pod has no service account: %w", ErrNoAccess, err)
	}
	config := &rest.Config{
		Host:            "https://" + net.JoinHostPort(p.host, p.port),
		BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: ca},
	}
	refs = append(refs, ObjectRef{Kind: kindFile, Name: token}, ObjectRef{Kind: kindFile, Name: ca})
	return trustedAccess(config, []string{string(certificates)}, refs)
}
