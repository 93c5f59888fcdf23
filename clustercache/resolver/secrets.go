// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretOptions describe a convention of Secrets.
type SecretOptions struct {
	HubOptions
	// Type selects Secrets of one type, on the hub. Default: any type.
	Type corev1.SecretType
	// NameSuffix is the suffix of the Secrets' names. Default: any name.
	NameSuffix string
	// ID returns the cluster that a Secret describes, or false to ignore the
	// Secret. It must always return the same for the same Secret, which it must
	// not change. Names that are empty, not valid UTF-8, longer than 1 KiB or
	// have control characters are refused: such a Secret is represented by its
	// own key, with an error. If two Secrets describe one cluster, the older
	// one wins. Default: the Secret's namespace, and its name without
	// NameSuffix.
	ID func(secret *corev1.Secret) (Cluster, bool)
	// Keys are the possible keys of the kubeconfig: the first that exists is
	// used. Default: "kubeconfig", "value", "config".
	Keys []string
	// Decode makes the access if the Secret does not contain a kubeconfig. It
	// must not do I/O or change the Secret. [Kubeconfig] and [FromToken] help
	// it to stay strict. Default: a kubeconfig under one of Keys.
	Decode func(cluster Cluster, secret *corev1.Secret) (Access, error)
}

// Secrets resolves clusters from Secrets of any convention. It needs a
// selection on the hub: a Selector, a Type, or a Namespace; it never reads all
// Secrets of a hub.
func Secrets(hub client.WithWatch, options SecretOptions) (*HubResolver, error) {
	if options.Namespace == "" && options.Type == "" && (options.Selector == nil || options.Selector.Empty()) {
		return nil, errors.New("resolver: Secrets needs a Selector, a Type or a Namespace")
	}
	if len(options.Keys) == 0 {
		options.Keys = []string{"kubeconfig", "value", "config"}
	}
	decode := kubeconfigDecoder(options.HubOptions, options.Keys...)
	if options.Decode != nil {
		decode = func(in input) (Access, error) {
			return options.Decode(in.cluster, in.primary.(*corev1.Secret).DeepCopy())
		}
	}
	return newHubResolver(hub, options.convention(decode), options.HubOptions)
}

func (o SecretOptions) convention(build func(input) (Access, error)) convention {
	id := o.ID
	var key func(Cluster) client.ObjectKey
	if id == nil {
		id = func(secret *corev1.Secret) (Cluster, bool) {
			name, ok := strings.CutSuffix(secret.Name, o.NameSuffix)
			return Cluster{Namespace: secret.Namespace, Name: name}, ok && name != ""
		}
		key = keyWithSuffix(o.NameSuffix)
	}

	out := convention{
		primary: kind{
			gvk:       secretGVK,
			namespace: o.Namespace,
			labels:    o.Selector,
			calls:     "ID",
		},
		key: key,
		clusters: func(object client.Object) []Cluster {
			cluster, _ := id(object.(*corev1.Secret))
			return []Cluster{cluster}
		},
		build: build,
	}
	if o.Type != "" {
		out.primary.fields = fields.OneTermEqualSelector("type", string(o.Type))
	}
	out.primary.project = projecting(nil, func(secret *corev1.Secret) any {
		if o.Type != "" && secret.Type != o.Type || !strings.HasSuffix(secret.Name, o.NameSuffix) {
			return nil
		}
		if _, ok := id(secret); !ok {
			return nil
		}
		return trimSecret(secret)
	})

	return out
}

// MulticlusterRuntime resolves clusters as the kubeconfig provider of
// sigs.k8s.io/multicluster-runtime does: Secrets of one namespace with the
// label sigs.k8s.io/multicluster-runtime-kubeconfig=true and a kubeconfig under
// the key "kubeconfig". The cluster has the Secret's name, and no namespace.
func MulticlusterRuntime(hub client.WithWatch, options HubOptions) (*HubResolver, error) {
	if options.Namespace == "" {
		return nil, errors.New("resolver: MulticlusterRuntime needs a Namespace")
	}
	options.Selector = withLabel(options.Selector, "sigs.k8s.io/multicluster-runtime-kubeconfig", "true")
	described := SecretOptions{HubOptions: options, ID: byName}.convention(kubeconfigDecoder(options, "kubeconfig"))
	described.key = keyByName(options.Namespace)

	return newHubResolver(hub, described, options)
}

// VClusterName is an ID for [SecretOptions] with the Selector app=vcluster: it
// returns the Secret's namespace and the name of the vcluster, if the Secret is
// the one that each vcluster writes, vc-<name>. Others with that label are the
// chart's values, and further kubeconfigs that lead to the same vcluster.
func VClusterName(secret *corev1.Secret) (Cluster, bool) {
	if secret == nil {
		return Cluster{}, false
	}
	name := secret.Labels["vcluster-name"]
	return Cluster{Namespace: secret.Namespace, Name: name}, name != "" && secret.Name == "vc-"+name
}

// byName is the ID of conventions that have all Secrets in one namespace.
func byName(secret *corev1.Secret) (Cluster, bool) { return Cluster{Name: secret.Name}, true }

func keyByName(namespace string) func(Cluster) client.ObjectKey {
	return func(cluster Cluster) client.ObjectKey {
		if cluster.Namespace != "" {
			return client.ObjectKey{}
		}
		return client.ObjectKey{Namespace: namespace, Name: cluster.Name}
	}
}

// keyWithSuffix is the key of conventions whose Secrets have the cluster's name
// and a suffix.
func keyWithSuffix(suffix string) func(Cluster) client.ObjectKey {
	return func(cluster Cluster) client.ObjectKey {
		if cluster.Name == "" {
			return client.ObjectKey{}
		}
		return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + suffix}
	}
}

// Istio resolves clusters as Istio's remote Secrets describe them: Secrets with
// the label istio/multiCluster=true, by default in the namespace istio-system,
// in which every key is a cluster's name and its value a kubeconfig. If several
// Secrets have the same key, the oldest Secret wins. The key config of the
// Secret istio-kubeconfig, by which an external control plane reaches the
// cluster that it reads its configuration from, is no cluster's name.
func Istio(hub client.WithWatch, options HubOptions) (*HubResolver, error) {
	if options.Namespace == "" {
		options.Namespace = "istio-system"
	}
	return newHubResolver(hub, convention{
		primary: kind{
			gvk:       secretGVK,
			namespace: options.Namespace,
			labels:    withLabel(options.Selector, "istio/multiCluster", "true"),
			project:   projecting(nil, trimSecret),
		},
		clusters: func(object client.Object) []Cluster {
			var out []Cluster
			for _, key := range slices.Sorted(maps.Keys(object.(*corev1.Secret).Data)) {
				if object.GetName() != "istio-kubeconfig" || key != "config" {
					out = append(out, Cluster{Name: key})
				}
			}
			return out
		},
		build: func(in input) (Access, error) { return kubeconfigDecoder(options, in.cluster.Name)(in) },
	}, options)
}

// kubeconfigDecoder builds an access from a primary Secret with a kubeconfig
// under the first of the keys that exists.
func kubeconfigDecoder(options HubOptions, keys ...string) func(input) (Access, error) {
	return func(in input) (Access, error) {
		return options.kubeconfig(in.primary.(*corev1.Secret).Data, keys, in.ref)
	}
}

// kubeconfig makes an access from the kubeconfig under the first of the keys
// that exists.
func (o HubOptions) kubeconfig(data map[string][]byte, keys []string, refs ...ObjectRef) (Access, error) {
	value, err := firstValue(data, keys...)
	if err != nil {
		return Access{}, err
	}
	return Kubeconfig(value, KubeconfigOptions{Allow: o.Allow, MaxBytes: o.MaxBytes}, refs...)
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

// withLabel adds to a selector, which may be nil, that there is a label of this
// package's conventions, with the value, if that is not empty.
func withLabel(selector labels.Selector, key, value string) labels.Selector {
	if selector == nil {
		selector = labels.Everything()
	}
	operator, values := selection.Exists, []string(nil)
	if value != "" {
		operator, values = selection.Equals, []string{value}
	}
	requirement, _ := labels.NewRequirement(key, operator, values) // key and value are valid
	return selector.Add(*requirement)
}
