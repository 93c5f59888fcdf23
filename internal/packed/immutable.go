// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// immutable has the setters that the interfaces of an object ask for.
type immutable struct{}

// SetNamespace panics: objects are read-only.
func (immutable) SetNamespace(string) { panic(readOnly) }

// SetName panics: objects are read-only.
func (immutable) SetName(string) { panic(readOnly) }

// SetGenerateName panics: objects are read-only.
func (immutable) SetGenerateName(string) { panic(readOnly) }

// SetUID panics: objects are read-only.
func (immutable) SetUID(types.UID) { panic(readOnly) }

// SetResourceVersion panics: objects are read-only.
func (immutable) SetResourceVersion(string) { panic(readOnly) }

// SetGeneration panics: objects are read-only.
func (immutable) SetGeneration(int64) { panic(readOnly) }

// SetSelfLink panics: objects are read-only.
func (immutable) SetSelfLink(string) { panic(readOnly) }

// SetCreationTimestamp panics: objects are read-only.
func (immutable) SetCreationTimestamp(metav1.Time) { panic(readOnly) }

// SetDeletionTimestamp panics: objects are read-only.
func (immutable) SetDeletionTimestamp(*metav1.Time) { panic(readOnly) }

// SetDeletionGracePeriodSeconds panics: objects are read-only.
func (immutable) SetDeletionGracePeriodSeconds(*int64) { panic(readOnly) }

// SetLabels panics: objects are read-only.
func (immutable) SetLabels(map[string]string) { panic(readOnly) }

// SetAnnotations panics: objects are read-only.
func (immutable) SetAnnotations(map[string]string) { panic(readOnly) }

// SetFinalizers panics: objects are read-only.
func (immutable) SetFinalizers([]string) { panic(readOnly) }

// SetOwnerReferences panics: objects are read-only.
func (immutable) SetOwnerReferences([]metav1.OwnerReference) { panic(readOnly) }

// SetManagedFields panics: objects are read-only.
func (immutable) SetManagedFields([]metav1.ManagedFieldsEntry) { panic(readOnly) }

// SetUnstructuredContent panics: objects are read-only.
func (immutable) SetUnstructuredContent(map[string]any) { panic(readOnly) }
