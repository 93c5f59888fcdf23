// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Entry is what an entry of a set watches: the objects of a kind in a cluster,
// or some of them. It is comparable. [Decode] has its form in YAML and JSON.
type Entry struct {
	// Cluster is the cluster. The zero value is the hub.
	Cluster client.ObjectKey
	// GVK is the kind. Required.
	GVK schema.GroupVersionKind
	// Namespace restricts the entry to one namespace. Empty means all.
	Namespace string
	// LabelSelector and FieldSelector narrow the entry, in the syntax of
	// kubectl's flags. The server evaluates them. Empty means everything.
	LabelSelector, FieldSelector string
}

// EntryError reports an invalid field of an entry.
type EntryError struct {
	// Entry is the name of the entry; empty if it has none, or if the document
	// as a whole is invalid.
	Entry string
	// Field is the field, by its name in a manifest, such as labelSelector.
	Field string
	// Line is the line of the document, or 0 if there is none.
	Line int
	// Err is the cause.
	Err error
}

// Error names the line, the entry, the field and the cause.
func (e *EntryError) Error() string {
	var text string
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: ", e.Line)
	}
	if e.Entry != "" {
		text += fmt.Sprintf("entry %q: ", e.Entry)
	}
	if e.Field != "" {
		text += e.Field + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

var errRequired = errors.New("required")

// String returns a short readable form for logs and errors.
func (e Entry) String() string { return status.WatchKey(e).String() }

// target is an entry that was validated.
type target struct {
	Entry // with its selectors in canonical form

	labels labels.Selector
	fields fields.Selector
}

// validate returns the target of an entry. The error is an [*EntryError]
// without the name of the entry.
func (e Entry) validate() (target, error) {
	t := target{Entry: e}
	switch {
	case e.GVK.Kind == "":
		return t, &EntryError{Field: fieldKind, Err: errRequired}
	case e.GVK.Version == "":
		return t, &EntryError{Field: fieldAPIVersion, Err: errRequired}
	}
	key, err := informerpool.Key{
		Resource:      e.GVK.GroupVersion().WithResource("kind"),
		Kind:          e.GVK.Kind,
		Namespace:     e.Namespace,
		LabelSelector: e.LabelSelector,
		FieldSelector: e.FieldSelector,
	}.Canonical()
	if invalid, ok := errors.AsType[*informerpool.KeyError](err); ok {
		return t, &EntryError{Field: manifestName(invalid.Field), Err: invalid.Err}
	}
	if t.labels, err = labels.Parse(e.LabelSelector); err != nil {
		return t, &EntryError{Field: fieldLabelSelector, Err: err}
	}
	if t.fields, err = fields.ParseSelector(e.FieldSelector); err != nil {
		return t, &EntryError{Field: fieldFieldSelector, Err: err}
	}
	t.LabelSelector, t.FieldSelector = key.LabelSelector, key.FieldSelector

	return t, nil
}

// manifestName returns the name in a manifest of a field of an
// [informerpool.Key].
func manifestName(field string) string {
	switch field {
	case "Resource.Group", "Resource.Version":
		return fieldAPIVersion
	}
	first, size := utf8.DecodeRuneInString(field)
	return string(unicode.ToLower(first)) + field[size:]
}

// options returns the options of a watch of the target.
func (t target) options() *client.ListOptions {
	return &client.ListOptions{
		Namespace:     t.Namespace,
		LabelSelector: t.labels,
		FieldSelector: t.fields,
	}
}

// selects reports whether the target is known to select an object in the given
// state. Of the fields, only name and namespace are known.
func (t target) selects(o *informerpool.Object) bool {
	if t.Namespace != "" && o.GetNamespace() != "" && t.Namespace != o.GetNamespace() {
		return false
	}
	for _, r := range t.fields.Requirements() {
		switch {
		case r.Field == wants.FieldName && wants.Matches(r, o.GetName()):
		case r.Field == wants.FieldNamespace && wants.Matches(r, o.GetNamespace()):
		default:
			return false
		}
	}
	return o.MatchesLabels(t.labels)
}

// MarshalJSON returns the form that [Decode] reads.
func (e Entry) MarshalJSON() ([]byte, error) {
	version, kind := e.GVK.ToAPIVersionAndKind()
	return json.Marshal(struct {
		Cluster       string `json:"cluster"`
		APIVersion    string `json:"apiVersion"`
		Kind          string `json:"kind"`
		Namespace     string `json:"namespace,omitempty"`
		LabelSelector string `json:"labelSelector,omitempty"`
		FieldSelector string `json:"fieldSelector,omitempty"`
	}{
		Cluster:       clustername.Of(e.Cluster),
		APIVersion:    version,
		Kind:          kind,
		Namespace:     e.Namespace,
		LabelSelector: e.LabelSelector,
		FieldSelector: e.FieldSelector,
	})
}

// UnmarshalJSON reads an entry as strictly as [Decode] does. The error is an
// [*EntryError].
func (e *Entry) UnmarshalJSON(data []byte) error {
	doc, err := document(data)
	if err != nil {
		return err
	}
	read, err := readEntry(doc)
	if err != nil {
		if invalid, ok := errors.AsType[*EntryError](err); ok {
			invalid.Line = 0 // a line of an excerpt
		}
		return err
	}
	*e = read

	return nil
}
