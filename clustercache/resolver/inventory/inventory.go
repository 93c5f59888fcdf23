// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

const (
	group          = "multicluster.x-k8s.io"
	kind           = "ClusterProfile"
	consumerLabel  = "x-k8s.io/cluster-inventory-consumer"
	profileLabel   = "x-k8s.io/cluster-profile"
	secretKey      = "Config"
	defaultVersion = "v1alpha1"
)

// providerFields are the fields of a ClusterProfile's status with its access
// providers; the first one that is there counts.
var providerFields = []string{"accessProviders", "credentialProviders"}

// ProfileOptions configure a resolver of ClusterProfiles.
type ProfileOptions struct {
	// HubOptions select the ClusterProfiles, by Namespace and Selector. Allow is
	// what they may use besides a provider's plugin; its Exec and ExecEnv have
	// no meaning here.
	resolver.HubOptions
	// Providers are those that the operator has a plugin for, the preferred one
	// first. Required.
	Providers []Provider
	// Version is that of the ClusterProfiles. Default: v1alpha1.
	Version string
}

// Profiles resolves the cluster namespace/name by the ClusterProfile of that
// key, and the plugin of the first of the Providers that its status names. The
// labels of a cluster are those of its object. A ClusterProfile without any
// provider is a [resolver.ErrNotReady]. The errors are those of the options.
func Profiles(hub client.WithWatch, o ProfileOptions) (*resolver.HubResolver, error) {
	if err := check(o.Providers); err != nil {
		return nil, err
	}
	providers := slices.Clone(o.Providers)
	for i := range providers {
		providers[i].Exec = *providers[i].Exec.DeepCopy()
	}

	return resolver.Objects(hub, resolver.ObjectOptions{
		HubOptions: o.HubOptions,
		Kind:       profiles(o.Version),
		Access: func(profile *unstructured.Unstructured) (resolver.Access, error) {
			provider, cluster, err := choose(profile, providers)
			if err != nil {
				return resolver.Access{}, err
			}
			return access(profile, provider, cluster, o.HubOptions)
		},
	})
}

func profiles(version string) schema.GroupVersionKind {
	if version == "" {
		version = defaultVersion
	}
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// choose returns the first of the operator's providers that a profile names, and
// what the profile says about the cluster for it.
func choose(profile *unstructured.Unstructured, providers []Provider) (Provider, map[string]any, error) {
	for _, field := range providerFields {
		named, found, err := unstructured.NestedSlice(profile.Object, "status", field)
		if err != nil {
			return Provider{}, nil, &resolver.KubeconfigError{Field: "status." + field, Reason: "is no list"}
		}
		if !found || len(named) == 0 {
			continue
		}
		for _, provider := range providers {
			for _, entry := range named {
				of, _ := entry.(map[string]any)
				if of["name"] != provider.Name {
					continue
				}
				cluster, ok := of["cluster"].(map[string]any)
				if !ok {
					return Provider{}, nil, &resolver.KubeconfigError{
						Field: "status." + field, Reason: "has a provider without a cluster",
					}
				}
				return provider, cluster, nil
			}
		}
		return Provider{}, nil, &resolver.RefusedError{
			Field: "status." + field, Reason: "names no provider that the operator is configured for",
		}
	}

	return Provider{}, nil, fmt.Errorf("%w: status.%s is empty", resolver.ErrNotReady, providerFields[0])
}

// access makes the access by a kubeconfig of the object's cluster and the
// operator's plugin. Both go into fields of their own, so that the object cannot
// reach the user.
func access(
	profile *unstructured.Unstructured, provider Provider, cluster map[string]any, o resolver.HubOptions,
) (resolver.Access, error) {
	const name = "profile"
	data, err := json.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters":        []any{map[string]any{"name": name, "cluster": cluster}},
		"users":           []any{map[string]any{"name": name, "user": map[string]any{"exec": provider.Exec}}},
		"contexts": []any{map[string]any{
			"name":    name,
			"context": map[string]any{"cluster": name, "user": name},
		}},
	})
	if err != nil {
		return resolver.Access{}, &resolver.KubeconfigError{Field: "status", Reason: "cannot be written as JSON"}
	}

	allow := o.Allow
	allow.Files = "" // the object's author has no files here
	allow.Exec, allow.ExecEnv = []string{provider.Exec.Command}, nil
	for _, env := range provider.Exec.Env {
		allow.ExecEnv = append(allow.ExecEnv, env.Name)
	}
	ref := resolver.ObjectRef{Kind: kind, Namespace: profile.GetNamespace(), Name: profile.GetName()}

	return resolver.Kubeconfig(data, resolver.KubeconfigOptions{Allow: allow, MaxBytes: o.MaxBytes}, ref)
}

// SecretOptions configure a resolver of the Secrets of a consumer.
type SecretOptions struct {
	// HubOptions select the Secrets, by Namespace and Selector. A ReadyObject
	// takes the place of the ClusterProfile.
	resolver.HubOptions
	// Consumer is the name under which the operator consumes the inventory: the
	// value of the Secrets' label x-k8s.io/cluster-inventory-consumer. Required.
	Consumer string
	// Version is that of the ClusterProfiles. Default: v1alpha1.
	Version string
}

// Secrets resolves the cluster namespace/name by the Secret of that namespace
// with the labels x-k8s.io/cluster-inventory-consumer, the Consumer, and
// x-k8s.io/cluster-profile, the name. It has a kubeconfig under the key Config.
// The ClusterProfile of that key has to exist, and its labels are those of the
// cluster, in addition to those of the Secret. Of several such Secrets, the
// oldest one counts. The errors are those of the options.
func Secrets(hub client.WithWatch, o SecretOptions) (*resolver.HubResolver, error) {
	if o.Consumer == "" {
		return nil, errors.New("inventory: Secrets needs a Consumer")
	}
	selector := o.Selector
	if selector == nil {
		selector = labels.Everything()
	}
	mine, err := labels.NewRequirement(consumerLabel, selection.Equals, []string{o.Consumer})
	if err != nil {
		return nil, fmt.Errorf("inventory: Consumer: %w", err)
	}
	described, err := labels.NewRequirement(profileLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	options := o.HubOptions
	options.Selector = selector.Add(*mine, *described)
	if options.ReadyObject == nil {
		options.ReadyObject = &resolver.ReadyObject{
			Kind:  profiles(o.Version),
			Ready: func(*unstructured.Unstructured) bool { return true }, // it exists
		}
	}

	return resolver.Secrets(hub, resolver.SecretOptions{
		HubOptions: options,
		Keys:       []string{secretKey},
		ID: func(secret *corev1.Secret) (resolver.Cluster, bool) {
			name := secret.Labels[profileLabel]
			return resolver.Cluster{Namespace: secret.Namespace, Name: name}, name != ""
		},
	})
}
