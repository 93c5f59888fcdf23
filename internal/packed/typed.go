// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	stdjson "encoding/json"
	"reflect"
	"strconv"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/json"
)

// Each function below reads one value. False means that the value does not fit
// the type, or that only the library can read it; the library then decodes the
// whole object from the beginning.

// value reads any value into v, which has the zero value.
func (p *plan) value(d *decoder, v reflect.Value) bool {
	if p.null && d.b[d.i] == 'n' {
		d.scalar()
		return true
	}
	return p.read(p, d, v)
}

// object reads a struct.
func (p *plan) object(d *decoder, v reflect.Value) bool {
	if d.b[d.i] != '{' {
		return false
	}
	d.enter()
	return p.members(d, v)
}

// members reads the members of a struct. It leaves repeated keys to the
// library, which merges their values.
func (p *plan) members(d *decoder, v reflect.Value) bool {
	var seen [maxFields / 64]uint64
	next := uint(0)
	for d.more() {
		f := p.field(d, next)
		if f == nil {
			d.raw()
			continue
		}
		next = f.bit + 1
		bit := uint64(1) << (f.bit % 64)
		if seen[f.bit/64]&bit != 0 {
			return false
		}
		seen[f.bit/64] |= bit
		if !f.plan.value(d, f.of(v)) {
			return false
		}
	}

	return true
}

// nearby is how many fields are tried before their names are looked up.
const nearby = 8

// field reads a key and advances to its value. It returns the field with that
// name, if there is one. Servers write members in the order of the struct, so
// that it is mostly one of the fields from next on.
func (p *plan) field(d *decoder, next uint) *field {
	for _, f := range p.order[next:min(next+nearby, uint(len(p.order)))] {
		if d.skip(f.key) {
			return f
		}
	}
	return p.fields[string(d.key())]
}

// of returns the field of the struct v.
func (f *field) of(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		v = v.Field(i)
	}
	return v
}

// library reads a value with util/json.
func (p *plan) library(d *decoder, v reflect.Value) bool {
	return json.Unmarshal(d.raw(), v.Addr().Interface()) == nil
}

// unmarshal reads a value with its type's own method.
func (p *plan) unmarshal(d *decoder, v reflect.Value) bool {
	u, _ := reflect.TypeAssert[stdjson.Unmarshaler](v.Addr())
	return u.UnmarshalJSON(d.raw()) == nil
}

func (p *plan) time(d *decoder, v reflect.Value) bool {
	t, _ := reflect.TypeAssert[*metav1.Time](v.Addr())
	if d.b[d.i] == '"' {
		if quoted, plain := d.literal(); plain {
			parsed, err := time.Parse(time.RFC3339, view(quoted[1:len(quoted)-1]))
			t.Time = parsed.Local()
			return err == nil
		}
		return false
	}

	return t.UnmarshalJSON(d.raw()) == nil
}

// intOrString does not call the type's own method, which uses encoding/json.
func (p *plan) intOrString(d *decoder, v reflect.Value) bool {
	x, _ := reflect.TypeAssert[*intstr.IntOrString](v.Addr())
	switch c := d.b[d.i]; {
	case c == '"':
		x.Type, x.StrVal = intstr.String, d.string()
		return true
	case '0' <= c && c <= '9':
		n, err := strconv.ParseInt(view(d.scalar()), 10, 32)
		x.Type, x.IntVal = intstr.Int, int32(n)
		return err == nil
	}

	return p.unmarshal(d, v)
}

func (p *plan) string(d *decoder, v reflect.Value) bool {
	if d.b[d.i] != '"' {
		return false
	}
	v.SetString(d.string())
	return true
}

func (p *plan) bool(d *decoder, v reflect.Value) bool {
	switch d.b[d.i] {
	case 't':
		v.SetBool(true)
	case 'f':
		v.SetBool(false)
	default:
		return false
	}

	d.scalar()
	return true
}

func (p *plan) int(d *decoder, v reflect.Value) bool {
	n, err := strconv.ParseInt(view(d.raw()), 10, 64)
	if err != nil || v.OverflowInt(n) {
		return false
	}
	v.SetInt(n)

	return true
}

func (p *plan) pointer(d *decoder, v reflect.Value) bool {
	elem := reflect.New(p.elem.typ)
	v.Set(elem)
	return p.elem.value(d, elem.Elem())
}

// slice reads the elements of a slice into one that is used again, so that the
// slice has room for them and no more: what is read may be kept for long.
func (p *plan) slice(d *decoder, v reflect.Value) bool {
	if d.b[d.i] != '[' {
		return false
	}
	d.enter()
	space := reflect.ValueOf(p.spaces.Get())
	if !space.IsValid() {
		space = reflect.New(p.typ)
	}
	all, n := space.Elem(), 0
	for ; d.more(); n++ {
		if n == all.Cap() {
			all.Grow(max(n, 4))
		}
		all.SetLen(n + 1)
		if !p.elem.value(d, all.Index(n)) {
			return false
		}
	}

	if n == 0 {
		v.Set(reflect.MakeSlice(p.typ, 0, 0))
	} else {
		v.Grow(n)
		v.SetLen(n)
		reflect.Copy(v, all)
		all.Clear()
		all.SetLen(0)
	}
	if all.Cap()*int(p.elem.typ.Size()) <= spaceMax { //nolint:gosec // the size of a Go type
		p.spaces.Put(space.Interface())
	}

	return true
}

// spaceMax is the size of the largest slice that is used again.
const spaceMax = 1 << 16

func (p *plan) bytes(d *decoder, v reflect.Value) bool {
	if d.b[d.i] != '"' {
		return false
	}
	text := d.text()
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		return false
	}
	v.SetBytes(b[:n])

	return true
}

func (p *plan) mapping(d *decoder, v reflect.Value) bool {
	if d.b[d.i] != '{' {
		return false
	}
	d.enter()
	m := reflect.MakeMap(p.typ)
	v.Set(m)
	if m, ok := reflect.TypeAssert[map[string]string](m); ok {
		return d.stringMap(m)
	}
	key, elem := reflect.New(p.typ.Key()).Elem(), reflect.New(p.elem.typ).Elem()
	for d.more() {
		key.SetString(keys.string(d.key()))
		elem.SetZero()
		if !p.elem.value(d, elem) {
			return false
		}
		m.SetMapIndex(key, elem)
	}

	return true
}

// stringMap reads members whose values are strings or null.
func (d *decoder) stringMap(m map[string]string) bool {
	for d.more() {
		key := keys.string(d.key())
		switch d.b[d.i] {
		case '"':
			m[key] = d.string()
		case 'n':
			d.scalar()
			m[key] = ""
		default:
			return false
		}
	}

	return true
}

func (p *plan) any(d *decoder, v reflect.Value) bool {
	v.Set(reflect.ValueOf(d.value()))
	return true
}

// view returns b as a string that becomes invalid when b changes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
