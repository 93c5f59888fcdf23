// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Fields of an entry in a manifest.
const (
	fieldCluster       = "cluster"
	fieldAPIVersion    = "apiVersion"
	fieldKind          = "kind"
	fieldNamespace     = "namespace"
	fieldLabelSelector = "labelSelector"
	fieldFieldSelector = "fieldSelector"
)

var (
	errEmpty     = errors.New("empty; a set without entries is {}")
	errSeveral   = errors.New("more than one document")
	errMapping   = errors.New("must be a mapping")
	errText      = errors.New("must be text; numbers, booleans and the like need quotes")
	errTwice     = errors.New("given twice")
	errUnknown   = errors.New("unknown field")
	errEntryName = errors.New("an entry needs a name")
)

// Decode reads the entries of a set, keyed by name, from a document in YAML or
// JSON:
//
//	web:
//	  cluster: fleet/east             # as in logs: namespace/name, name, or hub
//	  apiVersion: apps/v1
//	  kind: Deployment
//	  namespace: shop                 # optional, as are the selectors
//	  labelSelector: app in (cart, till)
//	  fieldSelector: metadata.name!=test
//
// It is strict: unknown fields, fields given twice, values that are not text,
// and invalid selectors are errors, and so are further documents, and a
// document without content, which may be a file that is being written. The
// error joins an [*EntryError] for each invalid entry.
func Decode(data []byte) (map[string]Entry, error) {
	doc, err := document(data)
	if err != nil {
		return nil, err
	}
	if doc.Kind != yaml.MappingNode {
		return nil, &EntryError{Line: doc.Line, Err: errMapping}
	}
	entries := make(map[string]Entry, len(doc.Content)/2)
	var bad []error
	for i := 0; i+1 < len(doc.Content); i += 2 {
		name, err := text(doc.Content[i])
		if err == nil && name == "" {
			err = errEntryName
		}
		if _, taken := entries[name]; err == nil && taken {
			err = errTwice
		}
		if err != nil {
			bad = append(bad, &EntryError{Entry: name, Line: doc.Content[i].Line, Err: err})
			continue
		}
		e, err := readEntry(doc.Content[i+1])
		if invalid, ok := errors.AsType[*EntryError](err); ok {
			invalid.Entry = name
			bad = append(bad, invalid)
		}
		entries[name] = e
	}

	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return entries, nil
}

// document returns the content of the only document. The error is an
// [*EntryError].
func document(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &EntryError{Err: errEmpty}
	case err != nil:
		return nil, &EntryError{Err: err}
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errSeveral
		}
		return nil, &EntryError{Line: more.Line, Err: err}
	}

	content := doc.Content
	if len(content) != 1 || content[0].Tag == "!!null" {
		return nil, &EntryError{Err: errEmpty}
	}
	return resolved(content[0]), nil
}

// readEntry reads and validates one entry. The error is an [*EntryError]
// without the name of the entry.
func readEntry(n *yaml.Node) (Entry, error) {
	var e Entry
	if n = resolved(n); n.Kind != yaml.MappingNode {
		return e, &EntryError{Line: n.Line, Err: errMapping}
	}
	given := map[string]int{} // the line of each field
	for i := 0; i+1 < len(n.Content); i += 2 {
		field, value := resolved(n.Content[i]).Value, n.Content[i+1]
		line := n.Content[i].Line
		if _, twice := given[field]; twice {
			return e, &EntryError{Field: field, Line: line, Err: errTwice}
		}
		given[field] = line
		if err := e.set(field, value); err != nil {
			return e, &EntryError{Field: field, Line: line, Err: err}
		}
	}

	for _, field := range []string{fieldCluster, fieldAPIVersion, fieldKind} {
		if _, ok := given[field]; !ok {
			return e, &EntryError{Field: field, Line: n.Line, Err: errRequired}
		}
	}
	_, err := e.validate()
	if invalid, ok := errors.AsType[*EntryError](err); ok {
		invalid.Line = given[invalid.Field]
	}

	return e, err
}

// set sets a field to its value in a manifest.
func (e *Entry) set(field string, value *yaml.Node) error {
	var into *string
	var plain string
	switch field {
	case fieldCluster, fieldAPIVersion:
		into = &plain
	case fieldKind:
		into = &e.GVK.Kind
	case fieldNamespace:
		into = &e.Namespace
	case fieldLabelSelector:
		into = &e.LabelSelector
	case fieldFieldSelector:
		into = &e.FieldSelector
	default:
		return errUnknown
	}
	var err error
	if *into, err = text(value); err != nil {
		return err
	}

	switch field {
	case fieldCluster:
		var ok bool
		if e.Cluster, ok = clustername.Parse(plain); !ok {
			return fmt.Errorf("%q is not the name of a cluster", plain)
		}
	case fieldAPIVersion:
		gv, err := schema.ParseGroupVersion(plain)
		if err != nil {
			return err
		}
		e.GVK.Group, e.GVK.Version = gv.Group, gv.Version
	}

	return nil
}

// text returns the value of a node that is text.
func text(n *yaml.Node) (string, error) {
	if n = resolved(n); n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return "", errText
	}
	return n.Value, nil
}

// resolved returns the node that an alias stands for, and others unchanged.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
