// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package misfit explains why a JSON document does not fit a Go type, without a
// word of the document: it may be a secret.
//
// # Tests
//
// The leading test is TestFieldIsNamedWithoutAWordOfTheDocument.
package misfit

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// maxDepth bounds how deep a field is searched for.
const maxDepth = 32

// Find returns the first field of a document that does not fit the type, and
// how; empty if the document fits, or is no JSON. The field is a path of names
// that the type has. A key of a map may be anything, and is left out.
func Find(document []byte, t reflect.Type) string {
	if !stdjson.Valid(document) || fits(document, t) {
		return ""
	}
	return find(document, t, "", maxDepth)
}

func fits(document []byte, t reflect.Type) bool {
	return json.Unmarshal(document, reflect.New(t).Interface()) == nil
}

func find(document []byte, t reflect.Type, path string, depth int) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth > 0 && !decodesItself(t) {
		if found := findWithin(document, t, path, depth-1); found != "" {
			return found
		}
	}
	what := nameOf(document) + " does not fit " + t.String()
	if path == "" {
		return what
	}

	return strings.TrimPrefix(path, ".") + ": " + what
}

func decodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

var unmarshaler = reflect.TypeFor[stdjson.Unmarshaler]()

// findWithin is find for the members of a document; empty if all of them fit.
func findWithin(document []byte, t reflect.Type, path string, depth int) string {
	switch t.Kind() {
	case reflect.Struct:
		members := map[string]stdjson.RawMessage{}
		if stdjson.Unmarshal(document, &members) != nil {
			return ""
		}
		return findMember(members, t, path, depth)
	case reflect.Map:
		members := map[string]stdjson.RawMessage{}
		_ = stdjson.Unmarshal(document, &members)
		for _, member := range members {
			if !fits(member, t.Elem()) {
				return find(member, t.Elem(), path+"[...]", depth)
			}
		}
	case reflect.Slice, reflect.Array:
		var elements []stdjson.RawMessage
		_ = stdjson.Unmarshal(document, &elements)
		for i, element := range elements {
			if !fits(element, t.Elem()) {
				return find(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth)
			}
		}
	default:
	}

	return ""
}

// findMember is find for the members of a struct.
func findMember(members map[string]stdjson.RawMessage, t reflect.Type, path string, depth int) string {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct {
			if found := findMember(members, field.Type, path, depth); found != "" {
				return found
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		member, has := members[name]
		if has && field.IsExported() && !fits(member, field.Type) {
			return find(member, field.Type, path+"."+name, depth)
		}
	}

	return ""
}

// nameOf names the JSON type of a document.
func nameOf(document []byte) string {
	switch document = bytes.TrimLeft(document, " \t\r\n"); document[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}

	return "a number"
}
