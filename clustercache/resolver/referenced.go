// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/listopts"
)

// ReferenceOptions describe objects that name the Secrets of their clusters.
type ReferenceOptions struct {
	HubOptions
	// Kind is the kind of the objects, such as fleet.example.com/v1 Member.
	// Required, and neither Secret nor ConfigMap. The objects are selected by
	// the Namespace and Selector.
	Kind schema.GroupVersionKind
	// SecretName is the path of the field with the Secret's name, such as
	// spec.kubeconfigRef.name. An object without that field is an
	// [ErrNotReady]: a field of its status may be written later. Required,
	// unless Reference is set.
	SecretName string
	// SecretNamespace is the path of the field with the Secret's namespace.
	// Default: Secrets are in the object's own namespace.
	SecretNamespace string
	// SecretKey is the path of the field with the key of the kubeconfig.
	// Default: Keys are the possible ones, as they are for an object without
	// that field.
	SecretKey string
	// Keys are the possible keys of the kubeconfig: the first that exists is
	// used. Default: "kubeconfig", "value", "config".
	Keys []string
	// Reference returns the Secret that an object names, instead of the paths.
	// An error, such as [ErrNotReady], is that of the cluster. It must not do
	// I/O or change the object, and must not put content of it into an error.
	Reference func(object *unstructured.Unstructured) (SecretReference, error)
	// SecretNamespaces are those in which an object may name Secrets, apart from
	// its own: authors of objects can make the operator use any Secret there.
	// The empty name permits all. If there is only one, a cluster-scoped object
	// that names no namespace refers to it. Default: none.
	SecretNamespaces []string
	// SecretSelector is what the Secrets have in common: they are followed by one
	// watch then, in the Namespace, or in all namespaces if SecretNamespaces
	// permits another, instead of one watch for each. A Secret without these
	// labels does not exist. Default: each Secret is watched by its name.
	SecretSelector labels.Selector
	// ID returns the cluster that an object describes, or false to ignore the
	// object. SecretOptions.ID has the rules. Default: the object's key.
	ID func(object *unstructured.Unstructured) (Cluster, bool)
	// Decode makes the access if the Secret does not contain a kubeconfig. It
	// must not do I/O. Default: a kubeconfig under SecretKey or one of Keys.
	Decode func(object *unstructured.Unstructured, secret *corev1.Secret) (Access, error)
}

// SecretReference names a Secret.
type SecretReference struct {
	// Namespace is the Secret's namespace. Defaults to that of the object that
	// names it.
	Namespace string
	// Name is the Secret's name. Empty results in [ErrNotReady].
	Name string
	// Key is the key of the kubeconfig. Defaults to ReferenceOptions.Keys.
	Key string
}

// reference is what is kept of an object that names a Secret.
type reference struct {
	SecretReference
	err    error
	object *unstructured.Unstructured // nil unless Decode needs it
}

// Referenced resolves the clusters that objects of any kind describe, each of
// which names a Secret with a kubeconfig. All selected objects of the kind are
// followed by one watch, and each named Secret is watched individually: no other
// Secret is read, and the operator needs no right to list all of them. The
// labels of a cluster are those of its object.
//
// An object may only name a Secret of its own namespace, unless
// [ReferenceOptions.SecretNamespaces] permits another. Otherwise the
// authors of such objects could use Secrets that only the operator may read.
func Referenced(hub client.WithWatch, options ReferenceOptions) (*HubResolver, error) {
	switch {
	case options.Kind.Kind == "" || options.Kind == secretGVK || options.Kind == configMapGVK:
		return nil, errors.New("resolver: Referenced needs a Kind, which is neither Secret nor ConfigMap")
	case (options.SecretName == "") == (options.Reference == nil):
		return nil, errors.New("resolver: Referenced needs either SecretName or Reference")
	case listopts.LabelsOfNothing(options.SecretSelector):
		return nil, errors.New("resolver: SecretSelector: selects nothing")
	}
	for _, path := range []string{options.SecretName, options.SecretNamespace, options.SecretKey} {
		if path != "" && slices.Contains(strings.Split(path, "."), "") {
			return nil, errors.New("resolver: the path of a field has an empty part")
		}
	}
	if len(options.Keys) == 0 {
		options.Keys = []string{"kubeconfig", "value", "config"}
	}
	options.Keys, options.SecretNamespaces = slices.Clone(options.Keys), slices.Clone(options.SecretNamespaces)

	c := describedBy(options.HubOptions, options.Kind, options.ID, "ID or Reference", options.project)
	c.build = options.build
	if options.SecretSelector != nil {
		namespace := options.Namespace
		if len(options.SecretNamespaces) > 0 {
			namespace = ""
		}
		c.related = []kind{{
			gvk:       secretGVK,
			namespace: namespace,
			labels:    options.SecretSelector,
			project:   projecting(nil, trimSecret),
		}}
	}

	return newHubResolver(hub, c, options.HubOptions)
}

// describedBy returns a convention, without build, of objects of any kind that
// each describe one cluster.
func describedBy(
	options HubOptions, gvk schema.GroupVersionKind, id func(*unstructured.Unstructured) (Cluster, bool), calls string,
	project func(*unstructured.Unstructured) any,
) convention {
	var key func(Cluster) client.ObjectKey
	if id == nil {
		id = func(object *unstructured.Unstructured) (Cluster, bool) {
			return client.ObjectKeyFromObject(object), true
		}
		key = func(cluster Cluster) client.ObjectKey { return cluster }
	}

	return convention{
		primary: kind{
			gvk:       gvk,
			namespace: options.Namespace,
			labels:    options.Selector,
			calls:     calls,
			project: projecting(nil, func(object *unstructured.Unstructured) any {
				if _, ok := id(object); !ok {
					return nil
				}
				return project(object)
			}),
		},
		key: key,
		clusters: func(object client.Object) []Cluster {
			cluster, _ := id(object.(*unstructured.Unstructured))
			return []Cluster{cluster}
		},
	}
}

// ObjectOptions describe objects that describe their clusters in full.
type ObjectOptions struct {
	HubOptions
	// Kind is the kind of the objects. Required, and neither Secret nor
	// ConfigMap: see [Secrets].
	Kind schema.GroupVersionKind
	// ID returns the cluster that an object describes, or false to ignore the
	// object. SecretOptions.ID has the rules. Default: the object's key.
	ID func(object *unstructured.Unstructured) (Cluster, bool)
	// Access makes the access, such as by [Kubeconfig] or [FromToken], which
	// check what others wrote. An error, such as [ErrNotReady], is that of the
	// cluster. It must not do I/O or change the object, and must not put content
	// of it into an error. Required.
	Access func(object *unstructured.Unstructured) (Access, error)
}

// Objects resolves the clusters that objects of any kind describe without a
// Secret. All selected objects of the kind are followed by one watch. The labels
// of a cluster are those of its object.
func Objects(hub client.WithWatch, options ObjectOptions) (*HubResolver, error) {
	if options.Kind.Kind == "" || options.Kind == secretGVK || options.Kind == configMapGVK || options.Access == nil {
		return nil, errors.New("resolver: Objects needs Access, and a Kind, which is neither Secret nor ConfigMap")
	}
	c := describedBy(options.HubOptions, options.Kind, options.ID, "ID or Access",
		func(object *unstructured.Unstructured) any {
			access, err := options.Access(object)
			return answer{access: access, err: err}
		})
	c.build = func(in input) (Access, error) {
		made := in.primary.(answer)
		if made.err == nil && made.access.IsZero() {
			return Access{}, ErrNotReady
		}
		return made.access, made.err
	}

	return newHubResolver(hub, c, options.HubOptions)
}

// project keeps the reference of an object.
func (o ReferenceOptions) project(object *unstructured.Unstructured) any {
	var out reference
	if o.Decode != nil {
		out.object = object.DeepCopy()
		out.object.SetManagedFields(nil)
	}
	if o.Reference != nil {
		out.SecretReference, out.err = o.Reference(object)
	} else {
		out.SecretReference, out.err = o.read(object)
	}
	if out.err == nil {
		out.err = o.complete(&out.SecretReference, object.GetNamespace())
	}

	return out
}

// read reads the fields.
func (o ReferenceOptions) read(object *unstructured.Unstructured) (out SecretReference, err error) {
	for _, field := range []struct {
		path string
		into *string
	}{
		{o.SecretName, &out.Name},
		{o.SecretNamespace, &out.Namespace},
		{o.SecretKey, &out.Key},
	} {
		if field.path == "" {
			continue
		}
		path := strings.Split(field.path, ".")
		if *field.into, _, err = unstructured.NestedString(object.Object, path...); err != nil {
			return SecretReference{}, invalid(field.path, "is no text")
		}
	}

	return out, nil
}

// complete fills in the namespace, and checks the reference of an object in the
// given namespace.
func (o ReferenceOptions) complete(r *SecretReference, own string) error {
	if r.Namespace == "" {
		r.Namespace = own
	}
	if r.Namespace == "" && len(o.SecretNamespaces) == 1 {
		r.Namespace = o.SecretNamespaces[0]
	}
	const what = "the reference"
	name, namespace := cmp.Or(o.SecretName, what), cmp.Or(o.SecretNamespace, what)
	switch {
	case r.Name == "":
		return fmt.Errorf("%w: %s has no name of a Secret", ErrNotReady, name)
	case r.Namespace == "":
		return fmt.Errorf("%w: %s has no namespace of a Secret", ErrNotReady, namespace)
	case len(validation.IsDNS1123Subdomain(r.Name)) > 0:
		return invalid(name, "has no valid name of a Secret")
	case len(validation.IsDNS1123Label(r.Namespace)) > 0:
		return invalid(namespace, "has no valid namespace")
	case r.Key != "" && len(validation.IsConfigMapKey(r.Key)) > 0:
		return invalid(cmp.Or(o.SecretKey, what), "has no valid key of a Secret")
	case r.Namespace != own && !slices.Contains(o.SecretNamespaces, r.Namespace) &&
		!slices.Contains(o.SecretNamespaces, ""):
		return refused(namespace, "has a namespace whose Secrets the object may not name")
	}

	return nil
}

func (o ReferenceOptions) build(in input) (Access, error) {
	object := in.primary.(reference)
	if object.err != nil {
		return Access{}, object.err
	}
	ref := ObjectRef{Kind: kindSecret, Namespace: object.Namespace, Name: object.Name}
	keys := o.Keys
	if object.Key != "" {
		keys = []string{object.Key}
	}
	return in.from(ref, func(found any) (Access, error) {
		secret := found.(*corev1.Secret)
		if o.Decode != nil {
			return o.Decode(object.object.DeepCopy(), secret.DeepCopy())
		}
		return o.kubeconfig(secret.Data, keys, in.ref, ref)
	})
}
