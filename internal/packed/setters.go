// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SetNamespace panics: objects are read-only.
func (o *Object) SetNamespace(string) { panic(readOnly) }

// SetName panics: objects are read-only.
func (o *Object) SetName(string) { panic(readOnly) }

// SetGenerateName panics: objects are read-only.
func (o *Object) SetGenerateName(string) { panic(readOnly) }

// SetUID panics: objects are read-only.
func (o *Object) SetUID(types.UID) { panic(readOnly) }

// SetResourceVersion panics: objects are read-only.
func (o *Object) SetResourceVersion(string) { panic(readOnly) }

// SetGeneration panics: objects are read-only.
func (o *Object) SetGeneration(int64) { panic(readOnly) }

// SetSelfLink panics: objects are read-only.
func (o *Object) SetSelfLink(string) { panic(readOnly) }

// SetCreationTimestamp panics: objects are read-only.
func (o *Object) SetCreationTimestamp(metav1.Time) { panic(readOnly) }

// SetDeletionTimestamp panics: objects are read-only.
func (o *Object) SetDeletionTimestamp(*metav1.Time) { panic(readOnly) }

// SetDeletionGracePeriodSeconds panics: objects are read-only.
func (o *Object) SetDeletionGracePeriodSeconds(*int64) { panic(readOnly) }

// SetLabels panics: objects are read-only.
func (o *Object) SetLabels(map[string]string) { panic(readOnly) }

// SetAnnotations panics: objects are read-only.
func (o *Object) SetAnnotations(map[string]string) { panic(readOnly) }

// SetFinalizers panics: objects are read-only.
func (o *Object) SetFinalizers([]string) { panic(readOnly) }

// SetOwnerReferences panics: objects are read-only.
func (o *Object) SetOwnerReferences([]metav1.OwnerReference) { panic(readOnly) }

// SetManagedFields panics: objects are read-only.
func (o *Object) SetManagedFields([]metav1.ManagedFieldsEntry) { panic(readOnly) }
