// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding"
	stdjson "encoding/json"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan describes how to read a value of one Go type. It applies the rules of
// k8s.io/apimachinery/pkg/util/json, worked out once per type. It covers the
// types that API types consist of and leaves everything else to that library,
// value by value.
type plan struct {
	typ    reflect.Type
	read   func(p *plan, d *decoder, v unsafe.Pointer) bool
	null   bool              // null leaves the zero value: read is not called for it
	elem   *plan             // of pointers, slices and maps
	fields map[string]*field // of structs
	order  []field           // the same, in the order of the struct
	meta   bool              // a struct whose "metadata" is a metav1.ObjectMeta
	spaces sync.Pool         // of *space, of slices, and of *member, of maps
}

// field is a member of a struct.
type field struct {
	offset uintptr // in the struct, also if embedded structs are between
	bit    uint    // number of the field within the plan
	key    string  // with its quotes and the colon
	plan   *plan
}

// maxFields is how many fields the set of seen fields can hold.
const maxFields = 256

var (
	plansMu sync.Mutex // protects the creation of plans
	plans   sync.Map   // reflect.Type to *plan

	unmarshaler     = reflect.TypeFor[stdjson.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType      = reflect.TypeFor[stdjson.Number]()
)

// planOf returns the plan of a type. There are as many plans as Go types, which
// are few.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	plansMu.Lock()
	defer plansMu.Unlock()

	making := map[reflect.Type]*plan{}
	p := makePlan(t, making)
	// Plans refer to each other, so they are published once all are complete.
	for t, p := range making {
		plans.LoadOrStore(t, p)
	}

	return p
}

func makePlan(t reflect.Type, making map[reflect.Type]*plan) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if p := making[t]; p != nil {
		return p
	}
	p := &plan{typ: t, read: (*plan).library}
	making[t] = p
	pointer := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		p.read = (*plan).time
		return p
	case t == reflect.TypeFor[intstr.IntOrString]():
		p.read = (*plan).intOrString
		return p
	case t == reflect.TypeFor[resource.Quantity]():
		p.read = (*plan).quantity
		return p
	case t == reflect.TypeFor[metav1.FieldsV1]():
		p.read = (*plan).fieldsV1
		return p
	case pointer.Implements(unmarshaler):
		p.read = (*plan).unmarshal
		return p
	case pointer.Implements(textUnmarshaler), t == numberType:
		return p
	}

	p.null = true
	switch t.Kind() {
	case reflect.String:
		p.read = (*plan).string
	case reflect.Bool:
		p.read = (*plan).bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.read = (*plan).int
	case reflect.Pointer:
		p.read, p.elem = (*plan).pointer, makePlan(t.Elem(), making)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			p.read = (*plan).bytes
			break
		}
		p.read, p.elem = (*plan).slice, makePlan(t.Elem(), making)
	case reflect.Map:
		switch {
		case t == reflect.TypeFor[map[string]string]():
			p.read = (*plan).stringMapping
		case t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshaler):
			p.read, p.elem = (*plan).mapping, makePlan(t.Elem(), making)
		}
	case reflect.Interface:
		if t.NumMethod() == 0 {
			p.read = (*plan).any
		}
	case reflect.Struct:
		p.structure(making)
	}

	return p
}

// structure completes the plan of a struct, unless its fields are unusual.
func (p *plan) structure(making map[reflect.Type]*plan) {
	fields := map[string]*field{}
	if !collect(p.typ, 0, fields, making) || len(fields) > maxFields {
		return
	}
	p.fields, p.order = fields, make([]field, len(fields))
	for name, f := range fields {
		p.order[f.bit] = *f
		fields[name] = &p.order[f.bit]
	}
	p.read = (*plan).object
	m, ok := fields["metadata"]
	p.meta = ok && m.plan.typ == reflect.TypeFor[metav1.ObjectMeta]()
}

// collect adds the fields of a struct. It gives up if the rules of precedence
// between embedded structs are needed, or if there are options other than
// omitempty.
func collect(t reflect.Type, offset uintptr, fields map[string]*field, making map[reflect.Type]*plan) bool {
	for f := range t.Fields() {
		name, use := fieldName(f)
		switch use {
		case unusualField:
			return false
		case noField:
			continue
		}

		at := offset + f.Offset
		if use == promotedFields {
			if f.Type.Kind() != reflect.Struct || !collect(f.Type, at, fields, making) {
				return false
			}
			continue
		}

		if _, twice := fields[name]; twice {
			return false
		}
		fields[name] = &field{
			offset: at,
			bit:    uint(len(fields)),
			key:    `"` + name + `":`,
			plan:   makePlan(f.Type, making),
		}
	}

	return true
}

// Roles of a struct field in JSON.
const (
	namedField     = iota
	promotedFields // its own fields take its place
	noField
	unusualField // only the library can handle it
)

// fieldName returns the JSON name of a field and its role.
func fieldName(f reflect.StructField) (string, int) {
	tag := f.Tag.Get("json")
	if tag == "-" {
		return "", noField
	}
	name, options, _ := strings.Cut(tag, ",")
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "", "omitempty", "omitzero", "inline":
		default:
			return "", unusualField
		}
	}

	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '$':
		default:
			return "", unusualField
		}
	}

	switch {
	case name == "" && f.Anonymous:
		return "", promotedFields
	case !f.IsExported():
		return "", noField
	case name == "":
		return f.Name, namedField
	}

	return name, namedField
}
