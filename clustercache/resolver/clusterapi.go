// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	clusterAPILabel  = "cluster.x-k8s.io/cluster-name"
	clusterAPISuffix = "-kubeconfig"
	clusterAPIKey    = "value"
	// clusterAPIUser is what some providers add to a cluster's name for the
	// Secret of its users.
	clusterAPIUser = "-user"
)

// ClusterAPI resolves clusters as Cluster API and Rancher's provisioning
// describe them: the cluster namespace/name by the Secret name-kubeconfig of
// the same namespace, with a kubeconfig under the key "value".
//
// The Secret needs the label cluster.x-k8s.io/cluster-name with the cluster's
// name, which selects on the hub. The Secret's type does not matter, and Secrets
// with the same label but other content are not kept. [HubOptions.ReadyObject]
// with [ClusterAPIReady] withholds clusters whose control plane does not exist
// yet.
//
// The providers of EKS and GKE write two Secrets for cluster "a": for
// controllers, and for people, with a credential plugin. The second has the
// name and the label of a cluster "a-user". It describes no cluster if its
// controlling owner is that of the first one or, where one of them has no such
// owner, if both lead to the same server; while there is no first one, if it is
// controlled by the control plane of EKS or GKE, and has a plugin and no token.
func ClusterAPI(hub client.WithWatch, options HubOptions) (*HubResolver, error) {
	selector, err := withRequirement(options.Selector, clusterAPILabel, selection.Exists)
	if err != nil {
		return nil, err
	}
	kubeconfig := kubeconfigDecoder(options, clusterAPIKey)
	return newHubResolver(hub, convention{
		primary: kind{
			gvk:       secretGVK,
			namespace: options.Namespace,
			labels:    selector,
			project: func(object client.Object) any {
				_, ours := clusterAPIName(object)
				return projectIf(ours, object, func(secret *corev1.Secret) any {
					return trimSecret(&corev1.Secret{
						ObjectMeta: secret.ObjectMeta,
						Data:       only(secret.Data, clusterAPIKey),
					})
				})
			},
		},
		key: func(cluster Cluster) (client.ObjectKey, bool) {
			if cluster.Name == "" {
				return client.ObjectKey{}, true
			}
			return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + clusterAPISuffix}, true
		},
		clusters: func(object client.Object) []Cluster {
			name, _ := clusterAPIName(object)
			return []Cluster{{Namespace: object.GetNamespace(), Name: name}}
		},
		second: func(object any, peer func(client.ObjectKey) (any, error)) (bool, error) {
			secret := object.(*corev1.Secret)
			name, _ := clusterAPIName(secret)
			first, ok := strings.CutSuffix(name, clusterAPIUser)
			if !ok || first == "" {
				return false, nil
			}
			other, err := peer(client.ObjectKey{Namespace: secret.Namespace, Name: first + clusterAPISuffix})
			if err != nil {
				return false, err
			}
			return forUsers(secret, other, options.MaxBytes), nil
		},
		build: kubeconfig,
	}, options)
}

// forUsers reports whether a Secret that is called like one for the users of a
// cluster is that. other is the Secret of that cluster, or nil.
func forUsers(secret *corev1.Secret, other any, maxBytes int) bool {
	controller := metav1.GetControllerOf(secret)
	server, user := endOf(secret, maxBytes)
	first, _ := other.(*corev1.Secret)
	if first == nil {
		return controller != nil && user != nil && user.Exec != nil && user.Token == "" &&
			(controller.Kind == "AWSManagedControlPlane" || controller.Kind == "GCPManagedControlPlane")
	}
	if firsts := metav1.GetControllerOf(first); firsts != nil && controller != nil {
		return firsts.Kind == controller.Kind && firsts.Name == controller.Name && firsts.UID == controller.UID
	}
	same, _ := endOf(first, maxBytes)
	if server == nil || same == nil {
		return false
	}

	return strings.TrimRight(server.Server, "/") == strings.TrimRight(same.Server, "/") &&
		server.TLSServerName == same.TLSServerName &&
		bytes.Equal(server.CertificateAuthorityData, same.CertificateAuthorityData)
}

// endOf returns where the kubeconfig of a Secret leads to, and as whom; nil if
// it has none that can be read.
func endOf(secret *corev1.Secret, maxBytes int) (*api.Cluster, *api.AuthInfo) {
	config, err := parseKubeconfig(secret.Data[clusterAPIKey], maxBytes)
	if err != nil {
		return nil, nil
	}
	cluster, user, err := pick(config, "")
	if err != nil {
		return nil, nil
	}
	return cluster, user
}

// clusterAPIName removes only one suffix: a cluster's name may itself end in
// it.
func clusterAPIName(object client.Object) (string, bool) {
	name, ok := strings.CutSuffix(object.GetName(), clusterAPISuffix)
	return name, ok && name != "" && object.GetLabels()[clusterAPILabel] == name
}

// kubeconfigDecoder builds an access from a primary Secret with a kubeconfig
// under the first of the keys that exists.
func kubeconfigDecoder(options HubOptions, keys ...string) func(input) (Access, error) {
	return func(in input) (Access, error) {
		secret, _ := in.primary.(*corev1.Secret)
		data, err := firstValue(secret.Data, keys...)
		if err != nil {
			return Access{}, err
		}
		return Kubeconfig(data, KubeconfigOptions{Allow: options.Allow, MaxBytes: options.MaxBytes}, in.ref)
	}
}

// firstValue returns the value of the first key that exists.
func firstValue(data map[string][]byte, keys ...string) ([]byte, error) {
	for _, key := range keys {
		if value, ok := data[key]; ok {
			return value, nil
		}
	}
	return nil, missingKey(keys...)
}

func missingKey(keys ...string) error {
	return fmt.Errorf("%w: %s", ErrKeyMissing, strings.Join(keys, ", "))
}

func only(data map[string][]byte, key string) map[string][]byte {
	value, ok := data[key]
	if !ok {
		return nil
	}
	return map[string][]byte{key: value}
}

// withRequirement adds a requirement on a label to a selector, which may be
// nil.
func withRequirement(
	selector labels.Selector, key string, op selection.Operator, values ...string,
) (labels.Selector, error) {
	if selector == nil {
		selector = labels.Everything()
	}
	requirement, err := labels.NewRequirement(key, op, values)
	if err != nil {
		return nil, errors.Join(errors.New("resolver: invalid label selector"), err)
	}
	return selector.Add(*requirement), nil
}
