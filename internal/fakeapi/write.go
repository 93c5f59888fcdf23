// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// writing is a write in progress. Its methods run under the server's lock. Those
// that serve a verb take it after they have read the request.
type writing struct {
	*exchange

	code   int // of the response
	dryRun bool
	gone   types.UID // of the object that a delete has removed
}

// write serves the verbs that write.
func (x *exchange) write() error {
	op := &writing{exchange: x, code: http.StatusOK, dryRun: x.q.Get("dryRun") == metav1.DryRunAll}
	var out *version
	var err error
	switch x.req.Verb {
	case "create":
		op.code = http.StatusCreated
		out, err = op.serveCreate()
	case "update":
		out, err = op.serveUpdate()
	case "patch":
		out, err = op.servePatch()
	case "delete":
		out, err = op.serveDelete()
	case "deletecollection":
		err = op.serveDeleteAll()
	default:
		err = apierrors.NewMethodNotSupported(x.req.GroupResource(), x.req.Verb)
	}

	switch {
	case err != nil:
		return err
	case out == nil:
		writeJSON(x.w, http.StatusOK, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{
				Name:  x.req.Name,
				Group: x.req.Group,
				Kind:  x.req.Resource,
				UID:   op.gone,
			},
		})
	default:
		writeRaw(x.w, op.code, x.form().of(out))
	}
	return nil
}

func (x *exchange) apiVersion() string {
	return x.table.kind.gvk(x.req.Version).GroupVersion().String()
}

func (op *writing) serveCreate() (*version, error) {
	u, err := op.decodeObject()
	if err != nil {
		return nil, err
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.create(u)
}

func (op *writing) create(u *unstructured.Unstructured) (*version, error) {
	if err := op.place(u); err != nil {
		return nil, err
	}
	if u.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		op.serial++
		u.SetName(fmt.Sprintf("%s%05d", u.GetGenerateName(), op.serial))
	}
	if op.table.kind.Status {
		delete(u.Object, "status")
	}
	op.newMetadata(op.table.kind, u)
	if err := op.validate(u, nil); err != nil {
		return nil, err
	}
	key := objectKey{u.GetNamespace(), u.GetName()}
	if op.table.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(op.req.GroupResource(), u.GetName())
	}
	if err := op.checkNamespace(u.GetNamespace()); err != nil {
		return nil, err
	}
	prepare(u, nil)
	if op.dryRun {
		return newVersion(op.rv, u.Object), nil
	}
	if op.table.kind.defines() {
		op.define(u)
	}

	return op.put(op.table, key, u.Object), nil
}

// newMetadata sets the metadata that a server sets in a new object.
func (s *store) newMetadata(k *Kind, u *unstructured.Unstructured) {
	s.serial++
	u.SetUID(types.UID(uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d", s.identity, s.serial)).String()))
	_ = unstructured.SetNestedField(u.Object, now(), "metadata", "creationTimestamp")
	u.SetDeletionTimestamp(nil)
	u.SetDeletionGracePeriodSeconds(nil)
	u.SetGeneration(0)
	if k.generations {
		u.SetGeneration(1)
	}
}

// place checks that the object's name and namespace are those of the path, and
// fills in a missing namespace.
func (op *writing) place(u *unstructured.Unstructured) error {
	if op.req.Name != "" && op.req.Verb != "create" && u.GetName() != op.req.Name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), op.req.Name))
	}
	if op.table.kind.ClusterScoped {
		if u.GetNamespace() != "" {
			return apierrors.NewBadRequest(
				"the namespace of the provided object does not match the namespace sent on the request")
		}
		return nil
	}

	switch u.GetNamespace() {
	case "":
		u.SetNamespace(op.req.Namespace)
	case op.req.Namespace:
	default:
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request")
	}

	return nil
}

// checkNamespace refuses to create an object in a namespace that does not exist
// or is being deleted.
func (op *writing) checkNamespace(name string) error {
	if op.table.kind.ClusterScoped {
		return nil
	}
	ns := op.tables["namespaces"]
	v := ns.objects[objectKey{name: name}]
	if v == nil {
		return apierrors.NewNotFound(ns.kind.GroupResource(), name)
	}
	if v.meta().GetDeletionTimestamp() != nil {
		err := apierrors.NewForbidden(op.req.GroupResource(), op.req.Name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating", Field: "metadata.namespace"}}
		return err
	}

	return nil
}

func (op *writing) validate(u, old *unstructured.Unstructured) error {
	names := validation.NameIsDNSSubdomain
	switch {
	case op.table.kind.Group == "rbac.authorization.k8s.io":
		names = func(name string, _ bool) []string { return content.IsPathSegmentName(name) }
	case op.table.kind.Group == "" && op.table.kind.Resource == "namespaces":
		names = validation.ValidateNamespaceName
	}

	root := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(u, !op.table.kind.ClusterScoped, names, root)
	if old != nil {
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(u, old, root)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(op.table.kind.gvk("").GroupKind(), u.GetName(), errs)
	}
	return nil
}

func (op *writing) serveUpdate() (*version, error) {
	u, err := op.decodeObject()
	if err != nil {
		return nil, err
	}
	op.mu.Lock()
	defer op.mu.Unlock()

	if err := op.place(u); err != nil {
		return nil, err
	}
	old := op.table.objects[objectKey{op.req.Namespace, op.req.Name}]
	if old == nil && op.table.kind.createsOnUpdate() {
		if u.GetUID() != "" {
			return nil, op.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: ",
				u.GetUID()))
		}
		u.SetResourceVersion("")
		return op.create(u)
	}
	if old == nil {
		return nil, apierrors.NewNotFound(op.req.GroupResource(), op.req.Name)
	}
	if !op.table.kind.builtIn && u.GetResourceVersion() == "" {
		return nil, apierrors.NewInvalid(op.table.kind.gvk("").GroupKind(), u.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}

	return op.update(old, u)
}

// update replaces old by u. Fields that the request may not change keep their
// old values.
func (op *writing) update(old *version, u *unstructured.Unstructured) (*version, error) {
	was := old.copy()
	was.SetAPIVersion(u.GetAPIVersion())
	if rv := u.GetResourceVersion(); rv != "" && rv != was.GetResourceVersion() {
		return nil, op.conflict(
			"the object has been modified; please apply your changes to the latest version and try again")
	}
	if uid := u.GetUID(); uid != "" && uid != was.GetUID() {
		return nil, op.otherUID(uid, was)
	}
	u = op.merge(was, u)
	if err := op.validate(u, was); err != nil {
		return nil, err
	}
	prepare(u, was)
	if op.table.kind.defines() && op.req.Subresource == "" {
		op.define(u)
	}
	key := objectKey{u.GetNamespace(), u.GetName()}
	leaving := u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 && !op.namespace()
	switch {
	case op.dryRun:
		return newVersion(old.rv, u.Object), nil
	case leaving:
		return op.finish(key, u), nil
	case reflect.DeepEqual(was.Object, u.Object):
		return old, nil
	}

	return op.put(op.table, key, u.Object), nil
}

// otherUID returns the error for a request with the UID of another object. It is
// a precondition in an update, but a change in a patch.
func (op *writing) otherUID(uid types.UID, was *unstructured.Unstructured) error {
	if op.req.Verb == "patch" {
		return apierrors.NewInvalid(op.table.kind.gvk("").GroupKind(), was.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, validation.FieldImmutableErrorMsg),
		})
	}
	return op.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid,
		was.GetUID()))
}

// merge returns u with all fields of was that a request does not change:
// identity, and spec or status.
func (op *writing) merge(was, u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(u.Object)}
	if op.req.Subresource == "status" {
		out = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(was.Object)}
		keep(out, u, "status")
		out.SetManagedFields(u.GetManagedFields())
		return out
	}

	if op.table.kind.Status {
		keep(out, was, "status")
	}
	for _, f := range []string{"uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp",
		"deletionGracePeriodSeconds", "generateName"} {
		keep(out, was, "metadata", f)
	}
	if slices.Equal(out.GetManagedFields(), []metav1.ManagedFieldsEntry{{}}) {
		out.SetManagedFields(nil) // the list that resets them
	}
	if op.table.kind.generations && !equality.Semantic.DeepEqual(counted(out), counted(was)) {
		out.SetGeneration(was.GetGeneration() + 1)
	}

	return out
}

// counted returns the part of an object whose changes generations count.
func counted(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for k, v := range u.Object {
		if k != "metadata" && k != "status" && k != "apiVersion" && k != "kind" {
			out[k] = v
		}
	}
	return out
}

// keep copies a field of from to u.
func keep(u, from *unstructured.Unstructured, path ...string) {
	value, found, _ := unstructured.NestedFieldNoCopy(from.Object, path...)
	if !found {
		unstructured.RemoveNestedField(u.Object, path...)
		return
	}
	_ = unstructured.SetNestedField(u.Object, runtime.DeepCopyJSONValue(value), path...)
}

func (op *writing) conflict(why string) error {
	return apierrors.NewConflict(op.req.GroupResource(), op.req.Name, errors.New(why))
}

func (op *writing) namespace() bool {
	return op.table.kind.Group == "" && op.table.kind.Resource == "namespaces"
}

// finish removes an object.
func (op *writing) finish(key objectKey, u *unstructured.Unstructured) *version {
	if op.table.kind.defines() {
		op.undefine(u)
	}
	return op.remove(op.table, key, u.Object)
}

// Seed stores an object unchanged, including its status, and creates its
// namespace if necessary. It replaces an existing object.
func (s *Server) Seed(u *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	gvk := u.GroupVersionKind()
	if t := s.tableOf(gvk.GroupKind()); t != nil && t.kind.serves(gvk.Version) {
		return s.seed(t, gvk.Version, u)
	}
	return fmt.Errorf("%s is not served", gvk)
}

func (s *Server) seed(t *table, version string, u *unstructured.Unstructured) error {
	u, err := fit(u.DeepCopy(), t.kind)
	if err != nil {
		return err
	}
	if !t.kind.ClusterScoped && u.GetNamespace() == "" {
		return fmt.Errorf("%s %q has no namespace", t.kind.Kind, u.GetName())
	}
	if ns := (objectKey{name: u.GetNamespace()}); !t.kind.ClusterScoped && s.tables["namespaces"].objects[ns] == nil {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		namespace.SetName(ns.name)
		if err := s.seed(s.tables["namespaces"], "v1", namespace); err != nil {
			return err
		}
	}

	op := &writing{exchange: &exchange{Server: s, table: t, req: &Request{
		Verb:      "create",
		Group:     t.kind.Group,
		Version:   version,
		Resource:  t.kind.Resource,
		Namespace: u.GetNamespace(),
		Name:      u.GetName(),
	}}}
	key := objectKey{u.GetNamespace(), u.GetName()}
	status, hasStatus := u.Object["status"]
	v := t.objects[key]
	u.SetResourceVersion("")
	u.SetUID("")
	if v == nil {
		v, err = op.create(u)
	} else {
		v, err = op.update(v, u)
	}
	if m, ok := status.(map[string]any); err != nil || !t.kind.Status || !hasStatus || (ok && len(m) == 0) ||
		op.table.kind.defines() {
		return err
	}
	full := v.copy()
	full.Object["status"] = status
	op.req.Subresource = "status"
	_, err = op.update(v, full)

	return err
}
