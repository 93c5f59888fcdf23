// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolvertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// WithType sets the type of a Secret.
func WithType(s *corev1.Secret, kind corev1.SecretType) *corev1.Secret {
	s.Type = kind
	return s
}

// CreatedAt sets when a Secret was created.
func CreatedAt(s *corev1.Secret, second int64) *corev1.Secret {
	s.CreationTimestamp = metav1.Unix(second, 0)
	return s
}

// Named returns a cluster without a namespace.
func Named(name string) resolver.Cluster { return resolver.Cluster{Name: name} }

// In returns a cluster in a namespace.
func In(namespace, name string) resolver.Cluster {
	return resolver.Cluster{Namespace: namespace, Name: name}
}

// Kustomization is the kind of Flux that refers to clusters.
var Kustomization = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}

// FluxObject returns a Kustomization.
func FluxObject(name string, kubeConfig map[string]any) client.Object {
	spec := map[string]any{"serviceAccountName": "deployer"}
	if kubeConfig != nil {
		spec["kubeConfig"] = kubeConfig
	}
	return UnstructuredObject("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", name,
		map[string]any{"spec": spec})
}

// SecretRef returns a kubeConfig field that refers to a Secret.
func SecretRef(name, key string) map[string]any {
	ref := map[string]any{"name": name}
	if key != "" {
		ref["key"] = key
	}
	return map[string]any{"secretRef": ref}
}

// ArgoSecret returns a cluster Secret as Argo CD writes it.
func ArgoSecret(name string, data map[string]string) *corev1.Secret {
	return Secret("argocd", name, map[string]string{"argocd.argoproj.io/secret-type": "cluster"}, data)
}

// ServiceAccountDir returns a directory with the files of a service account.
func ServiceAccountDir(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(CanaryToken), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), Identities()[0].Cert, 0o600))
	return dir
}
