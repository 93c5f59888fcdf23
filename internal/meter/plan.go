// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// shape is how a decoder handles a value.
type shape uint8

const (
	scalar    shape = iota // numbers and booleans: no memory beyond their slot
	text                   // strings and bytes
	structure              // objects with known members
	list                   // arrays
	table                  // objects with arbitrary members
	dynamic                // any value, as in unstructured objects
	opaque                 // types that decode themselves
)

// plan describes how much memory a value of a type takes beyond the slot that
// holds it.
type plan struct {
	shape  shape
	fields map[string]target // of a structure
	elem   target            // of a list or a table
	each   int64             // size of an element of a list, or of an entry of a table
	worst  int64             // of an opaque value: the largest allocation for it
	object target            // how an opaque value decodes an object, if known
	array  target            // how it decodes an array
}

// target is where a value goes. Pointers to the value take extra memory.
type target struct {
	plan  *plan // nil if the decoder skips the value
	extra int64
}

const (
	word       = 8
	stringSize = 2 * word
	anySize    = 2 * word
	mapHeader  = 6 * word
	// mapSlots is the capacity of the smallest map that is not empty. Entries
	// larger than indirect are stored outside the map.
	mapSlots = 8
	indirect = 128
	// dynamicWorst is the size of the smallest map[string]any that is not
	// empty.
	dynamicWorst = mapHeader + mapSlots*(stringSize+anySize) + 2*word
)

// grown returns the size of a slice that has grown to the given size, including
// the last slice it outgrew.
func grown(size int64) int64 { return size * 9 / 4 }

// planner makes the plans of types that may refer to each other.
type planner struct {
	plans map[reflect.Type]*plan
}

var targets sync.Map // of reflect.Type: target

// targetOf returns how documents are decoded into t, including pointers.
func targetOf(t reflect.Type) target {
	if known, ok := targets.Load(t); ok {
		return known.(target) //nolint:forcetypeassert // nothing else is stored
	}
	p := planner{plans: map[reflect.Type]*plan{}}
	made := p.target(t)
	targets.Store(t, made)
	return made
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	rawJSON         = reflect.TypeFor[json.RawMessage]()
)

// decodesItself reports whether a type has its own method for decoding JSON.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

func (b *planner) target(t reflect.Type) target {
	var out target
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		out.extra += size(t)
	}
	out.plan = b.plan(t)
	return out
}

// size returns the maximum size of an allocation of a type.
func size(t reflect.Type) int64 { return max(2*word, int64(t.Size())*9/8) } //nolint:gosec // sizes are small

func (b *planner) plan(t reflect.Type) *plan {
	if known := b.plans[t]; known != nil {
		return known
	}
	p := &plan{}
	b.plans[t] = p
	if decodesItself(t) {
		p.shape, p.worst = opaque, worst(t, map[reflect.Type]bool{})
		b.alternatives(t, p)
		return p
	}

	switch t.Kind() {
	case reflect.String:
		p.shape = text
	case reflect.Struct:
		p.shape, p.fields = structure, map[string]target{}
		b.members(t, p.fields, 0)
	case reflect.Slice, reflect.Array:
		p.shape = list
		if t.Elem().Kind() == reflect.Uint8 {
			p.shape = text
			break
		}
		p.elem, p.each = b.target(t.Elem()), grown(int64(t.Elem().Size())) //nolint:gosec // as above
	case reflect.Map:
		p.shape, p.elem = table, b.target(t.Elem())
		p.each = int64(t.Key().Size()) //nolint:gosec // as above
		if held := int64(t.Elem().Size()); held <= indirect {
			p.each += held
		} else {
			p.each += word
			p.elem.extra += size(t.Elem())
		}
	case reflect.Interface:
		p.shape = dynamic
	default:
	}

	return p
}

// alternatives determines how a type like JSONSchemaPropsOrArray, which holds a
// pointer to a struct or a slice of such structs, decodes objects and arrays.
func (b *planner) alternatives(t reflect.Type, p *plan) {
	if t.Kind() != reflect.Struct {
		return
	}
	var object, array reflect.Type
	larger := func(a, b reflect.Type) bool { return b == nil || a.Elem().Size() > b.Elem().Size() }
	for field := range t.Fields() {
		f := field.Type
		switch {
		case !field.IsExported():
		case f.Kind() == reflect.Pointer && f.Elem().Kind() == reflect.Struct && !decodesItself(f.Elem()) &&
			larger(f, object):
			object = f
		case f.Kind() == reflect.Slice && f.Elem().Kind() != reflect.Uint8 && larger(f, array):
			array = f
		}
	}

	if object != nil {
		p.object = b.target(object)
	}
	if array != nil {
		p.array = b.target(array)
	}
}

// members adds the members of a struct, including those of embedded structs.
func (b *planner) members(t reflect.Type, into map[string]target, depth int) {
	if depth > maxEmbedded {
		return
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if inner := f.Type; f.Anonymous && name == "" {
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				b.members(inner, into, depth+1)
				continue
			}
		}

		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, shadowed := into[name]; !shadowed || depth == 0 {
			into[name] = b.target(f.Type)
		}
	}
}

// maxEmbedded is the maximum depth of embedded structs that decoders examine.
const maxEmbedded = 8

// worst returns the size of the largest allocation that an opaque type is
// expected to make for one value in its JSON: the largest struct that can be
// reached through its exported fields, or a map if one can be reached.
func worst(t reflect.Type, seen map[reflect.Type]bool) int64 {
	if seen[t] || t == rawJSON {
		return 0
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		held := int64(0)
		if t.Kind() != reflect.Pointer && t.Elem().Kind() != reflect.Uint8 {
			held = grown(int64(t.Elem().Size())) //nolint:gosec // sizes are small
		}
		return max(held, worst(t.Elem(), seen))
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return dynamicWorst
		}
	case reflect.Struct:
		most := int64(0)
		if len(seen) > 1 {
			most = size(t)
		}
		for f := range t.Fields() {
			if f.IsExported() || f.Anonymous {
				most = max(most, worst(f.Type, seen))
			}
		}
		return most
	default:
	}

	return 0
}
