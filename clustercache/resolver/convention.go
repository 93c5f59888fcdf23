// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// convention specifies how one system describes its clusters by objects of the
// hub. Its functions make no requests, so that an answer depends only on the
// objects, and is the same from a live read and from a watched copy.
type convention struct {
	// primary is the kind whose objects describe clusters.
	primary kind
	// related are kinds that are watched as a whole. Secrets and ConfigMaps
	// that are not among them are watched one by one.
	related []kind
	// key derives the primary object's key from the cluster; one without a name
	// means that no object describes it. Nil where it cannot be derived.
	key func(Cluster) client.ObjectKey
	// clusters returns the clusters that a primary object describes.
	clusters func(client.Object) []Cluster
	// second, if set, reports whether a primary object only repeats how to reach
	// the cluster of another one, which peer returns by its key (nil if there is
	// none): it describes no cluster then. Its errors are those of peer.
	second func(object any, peer func(client.ObjectKey) (any, error)) (bool, error)
	// nameField is where clusters' names are taken from, for errors. Default:
	// ID.
	nameField string
	// build makes the access. It reads other objects only with get.
	build func(in input) (Access, error)
}

// input is the source of an access.
type input struct {
	cluster Cluster
	ref     ObjectRef // of the primary object
	primary any       // the result of primary.project
	// get returns the projection of another object: one of a related kind, or a
	// Secret or ConfigMap.
	get func(ObjectRef) (any, error)
}

// from makes an access from another object, which its errors name.
func (in input) from(ref ObjectRef, decode func(object any) (Access, error)) (Access, error) {
	object, err := in.get(ref)
	var access Access
	if err == nil {
		access, err = decode(object)
	}
	if err != nil {
		return Access{}, fail(in.cluster, ref, err)
	}
	return access, nil
}

// kind selects objects of one kind.
type kind struct {
	gvk       schema.GroupVersionKind
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	// calls names the option that project calls, for errors.
	calls string
	// ready marks the kind of the [ReadyObject].
	ready bool
	// project reduces an object to what is needed of it, and returns nil if the
	// object does not belong to the convention. It also repeats the selection,
	// which fakes and proxies do not always apply.
	project func(client.Object) any
}

func (k kind) ref(key client.ObjectKey) ObjectRef {
	return ObjectRef{Kind: k.gvk.Kind, Namespace: key.Namespace, Name: key.Name}
}

// has reports whether objects of the kind have such an identity.
func (k kind) has(id objectID) bool { return k.gvk.Kind == id.Kind && k.ready == id.ready }

// String names the kind and what is selected of it.
func (k kind) String() string {
	text := k.gvk.Kind + "s"
	if k.namespace != "" {
		text += " of namespace " + k.namespace
	}
	if k.labels != nil && !k.labels.Empty() {
		text += " with the label " + k.labels.String()
	}
	if k.fields != nil && !k.fields.Empty() {
		text += " with " + k.fields.String()
	}
	return text
}

// lacks returns the error for an object that is not there: it may be, and not
// be selected.
func (k kind) lacks(missing error) error {
	if k.labels == nil || k.labels.Empty() {
		return missing
	}
	return fmt.Errorf("%w with the label %s", missing, k.labels)
}

func (k kind) object() client.Object {
	switch k.gvk {
	case secretGVK:
		return &corev1.Secret{}
	case configMapGVK:
		return &corev1.ConfigMap{}
	}

	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(k.gvk)
	return out
}

func (k kind) list() client.ObjectList {
	switch k.gvk {
	case secretGVK:
		return &corev1.SecretList{}
	case configMapGVK:
		return &corev1.ConfigMapList{}
	}

	out := &unstructured.UnstructuredList{}
	gvk := k.gvk
	gvk.Kind += "List"
	out.SetGroupVersionKind(gvk)

	return out
}

// options returns the server-side selection.
func (k kind) options() client.ListOptions {
	return client.ListOptions{Namespace: k.namespace, LabelSelector: k.labels, FieldSelector: k.fields}
}

// objectID identifies an object that was read for one purpose. A [ReadyObject]
// may be of a kind that is also read for others: what is kept of it differs.
type objectID struct {
	ObjectRef

	ready bool // as a ReadyObject
}

// found is an object of a kind after projection.
type found struct {
	ref      ObjectRef
	ready    bool // it was read as a ReadyObject
	value    any
	labels   map[string]string
	clusters []Cluster // of a primary object
	created  time.Time
	// standIn is the cluster that represents those for which the object has no
	// usable name, and unnamed the reason.
	standIn Cluster
	unnamed error
	// failed is the reason why nothing else is known of the object: a function
	// of the options panicked.
	failed error
}

func (f found) id() objectID { return objectID{f.ref, f.ready} }

// selects projects an object, and reports whether it belongs to the convention.
func (k kind) selects(object client.Object) (found, bool) {
	key := client.ObjectKeyFromObject(object)
	scoped := k.namespace != "" && (key.Namespace != "" || !k.ready) // not a cluster-scoped ReadyObject
	if scoped && key.Namespace != k.namespace ||
		k.labels != nil && !k.labels.Matches(labels.Set(object.GetLabels())) {
		return found{ref: k.ref(key), ready: k.ready}, false
	}
	out := found{
		ref:     k.ref(key),
		ready:   k.ready,
		labels:  object.GetLabels(),
		created: object.GetCreationTimestamp().Time,
	}
	// An object on which a function of the options panics, or ends its
	// goroutine, may belong to the convention.
	out.failed = callback.ApartSecret(k.calls, func() error {
		out.value = k.project(object)
		return nil
	})
	return out, out.value != nil || out.failed != nil
}

// compareFound orders objects by age, and then by name.
func compareFound(a, b found) int {
	return cmp.Or(a.created.Compare(b.created),
		cmp.Compare(a.ref.Namespace, b.ref.Namespace), cmp.Compare(a.ref.Name, b.ref.Name))
}

var (
	secretGVK    = corev1.SchemeGroupVersion.WithKind(kindSecret)
	configMapGVK = corev1.SchemeGroupVersion.WithKind(kindConfigMap)
)

// named returns the kind that selects one Secret or ConfigMap.
func named(ref ObjectRef) (kind, bool) {
	out := kind{
		namespace: ref.Namespace,
		fields:    fields.OneTermEqualSelector("metadata.name", ref.Name),
	}
	ours := func(object client.Object) bool {
		return client.ObjectKeyFromObject(object) == client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	}
	switch ref.Kind {
	case kindSecret:
		out.gvk, out.project = secretGVK, projecting(ours, trimSecret)
	case kindConfigMap:
		out.gvk, out.project = configMapGVK, projecting(ours, trimConfigMap)
	default:
		return kind{}, false
	}

	return out, true
}

// projecting returns a kind's project for objects of one Go type. ours reports
// whether an object belongs to the convention; nil means that all do.
func projecting[O client.Object](ours func(client.Object) bool, project func(O) any) func(client.Object) any {
	return func(object client.Object) any {
		typed, ok := object.(O)
		if !ok || ours != nil && !ours(object) {
			return nil
		}
		return project(typed)
	}
}

// trimSecret keeps the fields that describe a cluster, and who wrote them.
func trimSecret(in *corev1.Secret) any {
	out := &corev1.Secret{Type: in.Type, Data: in.Data}
	out.Namespace, out.Name, out.Labels, out.Annotations = in.Namespace, in.Name, in.Labels, in.Annotations
	if controller := metav1.GetControllerOf(in); controller != nil {
		out.OwnerReferences = []metav1.OwnerReference{*controller}
	}
	return out
}

func trimConfigMap(in *corev1.ConfigMap) any {
	out := &corev1.ConfigMap{Data: in.Data}
	out.Namespace, out.Name = in.Namespace, in.Name
	return out
}
