// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (op *writing) serveDelete() (*version, error) {
	options, err := op.decodeDelete()
	if err != nil {
		return nil, err
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.delete(objectKey{op.req.Namespace, op.req.Name}, options)
}

// delete removes an object. If the object has finalizers, delete only marks it
// as being deleted and returns it.
func (op *writing) delete(key objectKey, options metav1.DeleteOptions) (*version, error) {
	v := op.table.objects[key]
	if v == nil {
		return nil, apierrors.NewNotFound(op.req.GroupResource(), key.name)
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != v.meta().GetUID() {
			return nil, op.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v",
				*p.UID, v.meta().GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != v.meta().GetResourceVersion() {
			return nil, op.conflict(fmt.Sprintf(
				"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
				*p.ResourceVersion, v.meta().GetResourceVersion()))
		}
	}

	op.gone = v.meta().GetUID()
	if op.dryRun || slices.Contains(options.DryRun, metav1.DryRunAll) {
		return nil, nil
	}
	u := v.copy()
	if policy := options.PropagationPolicy; policy != nil {
		setFinalizer(u, metav1.FinalizerDeleteDependents, *policy == metav1.DeletePropagationForeground)
		setFinalizer(u, metav1.FinalizerOrphanDependents, *policy == metav1.DeletePropagationOrphan)
	}
	if len(u.GetFinalizers()) == 0 && !op.namespace() {
		op.finish(key, u)
		return nil, nil
	}

	if u.GetDeletionTimestamp() == nil {
		_ = unstructured.SetNestedField(u.Object, now(), "metadata", "deletionTimestamp")
		if !op.namespace() {
			u.SetDeletionGracePeriodSeconds(new(int64(0)))
		}
		if g := u.GetGeneration(); g > 0 {
			u.SetGeneration(g + 1)
		}
		if op.namespace() {
			_ = unstructured.SetNestedField(u.Object, "Terminating", "status", "phase")
		}
	}

	if reflect.DeepEqual(u.Object, v.obj) {
		return v, nil
	}
	return op.put(op.table, key, u.Object), nil
}

func setFinalizer(u *unstructured.Unstructured, name string, on bool) {
	finalizers := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == name })
	if on {
		finalizers = append(finalizers, name)
	}
	if len(finalizers) == 0 {
		finalizers = nil
	}
	u.SetFinalizers(finalizers)
}

// serveDeleteAll deletes all selected objects.
func (op *writing) serveDeleteAll() error {
	which, err := op.selection()
	if err != nil {
		return err
	}
	options, err := op.decodeDelete()
	if err != nil {
		return err
	}
	op.mu.Lock()
	defer op.mu.Unlock()

	var keys []objectKey
	for key, v := range op.table.objects {
		if which.matches(v) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		if _, err := op.delete(key, options); err != nil {
			return err
		}
	}

	return nil
}
