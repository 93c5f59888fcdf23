// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Managed adds to generated objects what an API server adds: managedFields of
// the components that write them. It is made for one kind; its methods are safe
// for concurrent use.
//
// Objects of a kind have the same fields, apart from a few names that occur in
// keys. So the fields of one object serve as a template for the others.
type Managed struct {
	kind Kind

	once         sync.Once
	err          error
	names        []string // of the template
	main, status []byte
}

// NewManaged returns the managedFields of a kind.
func NewManaged(k Kind) *Managed { return &Managed{kind: k} }

// Add adds managedFields to object number i of the generator. The object has
// metadata as an API server returns it.
func (m *Managed) Add(g Generator, o client.Object) error {
	m.once.Do(func() { m.err = m.learn(g) })
	if m.err != nil {
		return m.err
	}
	var pairs []string
	for i, name := range variable(o) {
		pairs = append(pairs, m.names[i], name)
	}

	replace := strings.NewReplacer(pairs...)
	entry := func(manager, subresource string, fields []byte) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager:     manager,
			Operation:   metav1.ManagedFieldsOperationUpdate,
			APIVersion:  m.kind.GVK.GroupVersion().String(),
			Time:        new(o.GetCreationTimestamp()),
			FieldsType:  "FieldsV1",
			FieldsV1:    metav1.NewFieldsV1(replace.Replace(string(fields))),
			Subresource: subresource,
		}
	}
	managers, known := writers[m.kind.GVK.Kind]
	if !known {
		managers = [2]string{"helm", "custom-controller"}
	}
	entries := []metav1.ManagedFieldsEntry{entry(managers[0], "", m.main)}
	if m.status != nil {
		entries = append(entries, entry(managers[1], "status", m.status))
	}
	o.SetManagedFields(entries)

	return nil
}

// writers are the components that write the main part and the status.
var writers = map[string][2]string{
	"Pod":        {"kube-controller-manager", "kubelet"},
	"Deployment": {"kubectl-client-side-apply", "kube-controller-manager"},
	"ReplicaSet": {"kube-controller-manager", "kube-controller-manager"},
	"ConfigMap":  {"helm", ""},
	"Secret":     {"helm", ""},
	"Widget":     {"helm", "widget-controller"},
}

// variable returns the names of an object that occur in its managedFields.
func variable(o client.Object) []string {
	var names []string
	for _, ref := range o.GetOwnerReferences() {
		names = append(names, string(ref.UID))
	}
	template := corev1.PodSpec{}
	switch o := o.(type) {
	case *corev1.Pod:
		names = append(names, o.Status.PodIP, o.Spec.Volumes[1].Name)
		template = o.Spec
	case *appsv1.Deployment:
		template = o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		template = o.Spec.Template.Spec
	}

	if len(template.Containers) > 0 {
		names = append(names, template.Containers[0].VolumeMounts[0].MountPath)
	}
	return names
}

// learn derives the fields from object number 0.
func (m *Managed) learn(g Generator) error {
	o := m.kind.New(g, 0)
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return err
	}
	m.names = variable(o)
	status, hasStatus := tree["status"].(map[string]any)
	for _, name := range []string{"apiVersion", "kind", "status"} {
		delete(tree, name)
	}
	metadata, _ := tree["metadata"].(map[string]any)
	for _, name := range []string{"name", "namespace", "uid", "creationTimestamp", "resourceVersion"} {
		delete(metadata, name)
	}
	if m.main, err = json.Marshal(fieldsOf(tree, false)); err == nil && hasStatus && len(status) > 0 {
		m.status, err = json.Marshal(map[string]any{"f:status": fieldsOf(status, false)})
	}

	return err
}

// fieldsOf returns the field set of a value, in the form of FieldsV1.
func fieldsOf(value any, item bool) map[string]any {
	set := map[string]any{}
	if item {
		set["."] = map[string]any{}
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return map[string]any{}
	}
	for name, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			set["f:"+name] = fieldsOf(value, name == "labels" || name == "annotations")
		case []any:
			set["f:"+name] = fieldsOfList(name, value)
		default:
			set["f:"+name] = map[string]any{}
		}
	}

	return set
}

// keys are the fields that identify the items of associative lists.
var keys = map[string][]string{
	"containers":      {"name"},
	"env":             {"name"},
	"volumes":         {"name"},
	"volumeMounts":    {"mountPath"},
	"ports":           {"containerPort", "protocol"},
	"conditions":      {"type"},
	"ownerReferences": {"uid"},
	"podIPs":          {"ip"},
}

func fieldsOfList(name string, list []any) map[string]any {
	set := map[string]any{}
	by, associative := keys[name]
	if !associative {
		return set
	}
	set["."] = map[string]any{}
	for _, item := range list {
		item, _ := item.(map[string]any)
		var key []string
		for _, field := range by {
			value, _ := json.Marshal(item[field]) // a string or a number
			key = append(key, fmt.Sprintf("%q:%s", field, value))
		}
		set["k:{"+strings.Join(key, ",")+"}"] = fieldsOf(item, true)
	}

	return set
}
