// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FluxOptions describe the clusters that Flux's objects apply to.
type FluxOptions struct {
	HubOptions
	// Kind is the kind of the objects that have a spec.kubeConfig, such as
	// kustomize.toolkit.fluxcd.io/v1 Kustomization. Required. The objects are
	// selected by the Namespace and Selector.
	Kind schema.GroupVersionKind
	// Impersonate acts on the remote cluster as the object's
	// spec.serviceAccountName, as Flux does, so that reads see no more than the
	// object's author may. Default: the kubeconfig's own identity.
	Impersonate bool
	// Authenticate returns a function that adds credentials to requests, for
	// objects that name a cloud provider instead of a kubeconfig. It must not
	// do I/O itself; the round tripper fetches tokens, and renews them in time,
	// so that a rotation changes nothing here. Default: such objects are
	// refused.
	Authenticate func(cluster Cluster, provider FluxProvider) (transport.WrapperFunc, error)
}

// FluxProvider is the authentication described by Flux's ConfigMap.
type FluxProvider struct {
	// Name is aws, azure, gcp or generic.
	Name string
	// Cluster is the provider's own name of the cluster.
	Cluster string
	// Address is the URL of the API server.
	Address string
	// Audiences are those of the token. Empty means the address.
	Audiences []string
	// ServiceAccount is the service account in the object's namespace whose
	// token is exchanged. Empty means the operator's own identity.
	ServiceAccount string
}

// fluxObject holds the relevant fields of an object with a spec.kubeConfig.
type fluxObject struct {
	secret, secretKey, configMap string
	serviceAccount               string
}

// Flux resolves the clusters that Flux applies its objects to. The cluster
// namespace/name is the object of that key; an object without spec.kubeConfig
// applies to the hub and describes no cluster here.
//
// spec.kubeConfig.secretRef names a Secret of the object's namespace: the
// kubeconfig is under the given key only, or, without one, under "value" or
// "value.yaml". spec.kubeConfig.configMapRef names a ConfigMap with the address
// and certificate authority; [FluxOptions.Authenticate] adds the credentials.
// Each named Secret and ConfigMap is watched individually.
func Flux(hub client.WithWatch, options FluxOptions) (*HubResolver, error) {
	if options.Kind.Kind == "" {
		return nil, errors.New("resolver: Flux needs a Kind")
	}
	described := describedBy(options.HubOptions, options.Kind, nil, "", projectFlux)
	described.build = options.build
	return newHubResolver(hub, described, options.HubOptions)
}

func projectFlux(u *unstructured.Unstructured) any {
	if _, there, err := unstructured.NestedMap(u.Object, "spec", "kubeConfig"); !there || err != nil {
		return nil
	}
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, path...)...)
		return value
	}
	return fluxObject{
		secret:         text("kubeConfig", "secretRef", "name"),
		secretKey:      text("kubeConfig", "secretRef", "key"),
		configMap:      text("kubeConfig", "configMapRef", "name"),
		serviceAccount: text("serviceAccountName"),
	}
}

func (o FluxOptions) build(in input) (Access, error) {
	object := in.primary.(fluxObject)
	var access Access
	var err error
	switch {
	case (object.secret == "") == (object.configMap == ""):
		return Access{}, invalid("spec.kubeConfig", "needs exactly one of secretRef and configMapRef")
	case object.secret != "":
		ref := ObjectRef{Kind: kindSecret, Namespace: in.ref.Namespace, Name: object.secret}
		keys := []string{"value", "value.yaml"}
		if object.secretKey != "" {
			keys = []string{object.secretKey}
		}
		access, err = in.from(ref, func(secret any) (Access, error) {
			return o.kubeconfig(secret.(*corev1.Secret).Data, keys, in.ref, ref)
		})
	default:
		ref := ObjectRef{Kind: kindConfigMap, Namespace: in.ref.Namespace, Name: object.configMap}
		access, err = in.from(ref, func(provider any) (Access, error) {
			return o.fromProvider(in, ref, provider.(*corev1.ConfigMap).Data)
		})
	}

	if err != nil {
		return Access{}, err
	}
	return o.impersonate(access, in, object)
}

// impersonate repeats what Flux's own controllers do on the remote cluster.
func (o FluxOptions) impersonate(access Access, in input, object fluxObject) (Access, error) {
	if !o.Impersonate || object.serviceAccount == "" {
		return access, nil
	}
	return access.with(func(config *rest.Config) {
		user := "system:serviceaccount:" + in.ref.Namespace + ":" + object.serviceAccount
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
	})
}

var fluxFields = &fieldNames{server: "address", ca: "ca.crt"}

func (o FluxOptions) fromProvider(in input, ref ObjectRef, data map[string]string) (Access, error) {
	provider := FluxProvider{
		Name:           data["provider"],
		Cluster:        data["cluster"],
		Address:        data["address"],
		ServiceAccount: data["serviceAccountName"],
		Audiences:      strings.Fields(data["audiences"]),
	}
	switch {
	case provider.Name == "":
		return Access{}, missingKey("provider")
	case o.Authenticate == nil:
		return Access{}, refused("provider", "needs credentials that nothing here provides")
	case provider.Address == "":
		return Access{}, invalid("address", "is not set, and only the provider itself knows it")
	}

	if !strings.Contains(provider.Address, "://") {
		provider.Address = "https://" + provider.Address
	}
	endpoint := Endpoint{Server: provider.Address, CA: []byte(data["ca.crt"])}
	allow := o.Allow
	allow.Anonymous = true // Authenticate adds credentials to each request
	access, err := endpoint.access(fluxFields, "", allow, []ObjectRef{in.ref, ref})
	if err != nil {
		return Access{}, err
	}
	wrap, err := o.Authenticate(in.cluster, provider)
	if err != nil {
		return Access{}, err
	}
	return access.with(func(config *rest.Config) {
		config.Wrap(wrap)
		// Functions are not part of a revision, but the values that configured
		// this one are.
	}, provider.Name, provider.Cluster, provider.ServiceAccount, strings.Join(provider.Audiences, "\n"))
}
