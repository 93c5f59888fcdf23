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
	var m map[string]string
	o.eachBodyField(func(key string, value []byte) {
		if key == "annotations" {
			m = stringMap(value)
		}
	})
	return m
}

// GetFinalizers returns the finalizers, or nil if there are none. It
// decompresses the metadata.
func (o *Object) GetFinalizers() []string {
	if o.flags&hasFinalizers == 0 {
		return nil
	}
	var f []string
	o.eachBodyField(func(key string, value []byte) {
		if key == "finalizers" {
			f = slices.AppendSeq([]string{}, wire.Strings(value))
		}
	})
	return f
}

// GetGenerateName returns metadata.generateName. It decompresses the
// metadata.
func (o *Object) GetGenerateName() string { return o.bodyString("generateName") }

// GetSelfLink returns metadata.selfLink. It decompresses the metadata.
func (o *Object) GetSelfLink() string { return o.bodyString("selfLink") }

// GetDeletionGracePeriodSeconds returns metadata.deletionGracePeriodSeconds, or
// nil if there is none. It decompresses the metadata of a terminating object.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	if o.flags&hasGracePeriod == 0 {
		return nil
	}
	var seconds *int64
	o.eachBodyField(func(key string, value []byte) {
		if key == "deletionGracePeriodSeconds" {
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				seconds = &n
			}
		}
	})
	return seconds
}

// GetManagedFields returns the managed fields, or nil if there are none or the
// codec drops them. It decompresses the metadata.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	if o.flags&hasManagedFields == 0 {
		return nil
	}
	var entries []metav1.ManagedFieldsEntry
	o.eachBodyField(func(key string, value []byte) {
		// Decoding the whole object will report the mismatch as an error.
		if key == "managedFields" && json.Unmarshal(value, &entries) != nil {
			entries = nil
		}
	})
	return entries
}

func (o *Object) bodyString(name string) string {
	var s string
	o.eachBodyField(func(key string, value []byte) {
		if key == name {
			s = wire.String(value)
		}
	})
	return s
}

// eachBodyField calls f with each metadata field in the body. Values are raw
// JSON and become invalid when eachBodyField returns.
func (o *Object) eachBodyField(f func(key string, value []byte)) {
	of, err := o.open(toMetadata)
	if err != nil {
		return
	}
	defer of.close()
	s := of.s
	s.other = append(append(append(s.other[:0], '{'), s.metadata()...), '}')
	for key, value := range wire.Members(s.other) {
		f(key, value)
	}
}

// stringMap converts a JSON object of strings to a map.
func stringMap(object []byte) map[string]string {
	return maps.Collect(wire.StringMap(object))
}
