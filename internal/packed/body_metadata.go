// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// GetAnnotations returns a new map of the annotations, or nil if there are
// none. It decompresses the metadata.
func (o *Object) GetAnnotations() map[string]string {
	if o.flags&hasAnnotations == 0 {
		return nil
	}
	return bodyField(o, "annotations", func(value []byte) map[string]string {
		return maps.Collect(wire.StringMap(value))
	})
}

// GetFinalizers returns the finalizers, or nil if there are none. It
// decompresses the metadata.
func (o *Object) GetFinalizers() []string {
	if o.flags&hasFinalizers == 0 {
		return nil
	}
	return bodyField(o, "finalizers", func(value []byte) []string {
		return slices.AppendSeq([]string{}, wire.Strings(value))
	})
}

// GetGenerateName returns metadata.generateName. It decompresses the
// metadata.
func (o *Object) GetGenerateName() string { return bodyField(o, "generateName", wire.String) }

// GetSelfLink returns metadata.selfLink. It decompresses the metadata.
func (o *Object) GetSelfLink() string { return bodyField(o, "selfLink", wire.String) }

// GetDeletionGracePeriodSeconds returns metadata.deletionGracePeriodSeconds, or
// nil if there is none. It decompresses the metadata of a terminating object.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	if o.flags&hasGracePeriod == 0 {
		return nil
	}
	return bodyField(o, "deletionGracePeriodSeconds", func(value []byte) *int64 {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return nil
		}
		return &n
	})
}

// GetManagedFields returns the managed fields, or nil if there are none or the
// codec drops them. It decompresses the metadata.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	if o.flags&hasManagedFields == 0 {
		return nil
	}
	return bodyField(o, "managedFields", func(value []byte) (entries []metav1.ManagedFieldsEntry) {
		// Decoding the whole object will report the mismatch as an error.
		if json.Unmarshal(value, &entries) != nil {
			return nil
		}
		return entries
	})
}

// bodyField decodes a metadata field of the body, as raw JSON that becomes
// invalid afterwards. It returns zero if there is none.
func bodyField[T any](o *Object, name string, decode func(value []byte) T) (field T) {
	of, err := o.open(toMetadata)
	if err != nil {
		return field
	}
	defer of.close()
	s := of.s
	s.other = append(append(append(s.other[:0], '{'), s.metadata()...), '}')
	for key, value := range wire.Members(s.other) {
		if key == name {
			field = decode(value)
		}
	}
	return field
}
