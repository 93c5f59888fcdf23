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

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/json"
)

// Each function below reads one value into the variable at v, which has the type
// of the plan. (A reflect.Value would say so, and take a tenth longer.) False
// means that the value does not fit the type, or that only the library can read
// it; the library then decodes the whole object from the beginning.

// value reads any value into the variable at v, which has the zero value.
func (p *plan) value(d *decoder, v unsafe.Pointer) bool {
	if p.null && d.b[d.i] == 'n' {
		d.scalar()
		return true
	}
	return p.read(p, d, v)
}

// pointerTo returns a pointer to the variable at v as a value of its type.
func (p *plan) pointerTo(v unsafe.Pointer) reflect.Value { return reflect.NewAt(p.typ, v) }

// object reads a struct.
func (p *plan) object(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '{' {
		return false
	}
	d.enter()
	return p.members(d, v)
}

// members reads the members of a struct. It leaves repeated keys to the
// library, which merges their values.
func (p *plan) members(d *decoder, v unsafe.Pointer) bool {
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
		if !f.plan.value(d, unsafe.Add(v, f.offset)) {
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
	for at := next; at < min(next+nearby, uint(len(p.order))); at++ {
		if f := &p.order[at]; d.skip(f.key) {
			return f
		}
	}
	return p.fields[string(d.key())]
}

// library reads a value with util/json.
func (p *plan) library(d *decoder, v unsafe.Pointer) bool {
	return json.Unmarshal(d.raw(), p.pointerTo(v).Interface()) == nil
}

// unmarshal reads a value with its type's own method.
func (p *plan) unmarshal(d *decoder, v unsafe.Pointer) bool {
	u, _ := reflect.TypeAssert[stdjson.Unmarshaler](p.pointerTo(v))
	return u.UnmarshalJSON(d.raw()) == nil
}

func (p *plan) time(d *decoder, v unsafe.Pointer) bool {
	t := (*metav1.Time)(v)
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

// quantity and fieldsV1 call the types' own methods without reflection.
func (p *plan) quantity(d *decoder, v unsafe.Pointer) bool {
	return (*resource.Quantity)(v).UnmarshalJSON(d.raw()) == nil
}

func (p *plan) fieldsV1(d *decoder, v unsafe.Pointer) bool {
	return (*metav1.FieldsV1)(v).UnmarshalJSON(d.raw()) == nil
}

// intOrString does not call the type's own method, which uses encoding/json.
func (p *plan) intOrString(d *decoder, v unsafe.Pointer) bool {
	x := (*intstr.IntOrString)(v)
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

func (p *plan) string(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '"' {
		return false
	}
	*(*string)(v) = d.string()
	return true
}

func (p *plan) bool(d *decoder, v unsafe.Pointer) bool {
	switch d.b[d.i] {
	case 't':
		*(*bool)(v) = true
	case 'f':
		*(*bool)(v) = false
	default:
		return false
	}

	d.scalar()
	return true
}

func (p *plan) int(d *decoder, v unsafe.Pointer) bool {
	n, err := strconv.ParseInt(view(d.raw()), 10, p.typ.Bits())
	if err != nil {
		return false
	}
	switch p.typ.Size() {
	case 8:
		*(*int64)(v) = n
	case 4:
		*(*int32)(v) = int32(n) //nolint:gosec // parsed with this size
	default:
		p.pointerTo(v).Elem().SetInt(n)
	}

	return true
}

func (p *plan) pointer(d *decoder, v unsafe.Pointer) bool {
	elem := reflect.New(p.elem.typ).UnsafePointer()
	*(*unsafe.Pointer)(v) = elem
	return p.elem.value(d, elem)
}

// slice reads the elements of a slice into one that is used again, so that the
// slice has room for them and no more: what is read may be kept for long.
func (p *plan) slice(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '[' {
		return false
	}
	d.enter()
	from, ok := p.spaces.Get().(*space)
	if !ok {
		from = newSpace(p.typ)
	}
	n, size := 0, p.elem.typ.Size()
	for ; d.more(); n++ {
		if n == from.cap {
			from.grow(n)
		}
		if !p.elem.value(d, unsafe.Add(from.at, uintptr(n)*size)) {
			return false
		}
	}

	if n == 0 {
		p.pointerTo(v).Elem().Set(reflect.MakeSlice(p.typ, 0, 0))
	} else {
		*(*[]byte)(v) = from.take(n)
	}
	if uintptr(from.cap)*size <= spaceMax { //nolint:gosec // not negative
		p.spaces.Put(from)
	}

	return true
}

// space is a slice that elements are read into. Those that are not in use have
// the zero value.
type space struct {
	all   reflect.Value
	at    unsafe.Pointer // of the first element
	cap   int
	out   reflect.Value // a slice that is nil
	taken *[]byte       // the same: the slices of all types have the same header
}

func newSpace(slice reflect.Type) *space {
	out := reflect.New(slice)
	return &space{all: reflect.New(slice).Elem(), out: out.Elem(), taken: (*[]byte)(out.UnsafePointer())}
}

// grow makes room for more than the first n elements.
func (s *space) grow(n int) {
	s.all.SetLen(n)
	s.all.Grow(max(n, 4))
	s.cap = s.all.Cap()
	s.all.SetLen(s.cap)
	s.at = s.all.UnsafePointer()
}

// take moves the first n elements to a slice of their own, and returns its
// header.
func (s *space) take(n int) []byte {
	s.all.SetLen(n)
	s.out.Grow(n)
	s.out.SetLen(n)
	reflect.Copy(s.out, s.all)
	s.all.Clear()
	taken := *s.taken
	s.out.SetZero()

	return taken
}

// spaceMax is the size of the largest slice that is used again.
const spaceMax = 1 << 16

func (p *plan) bytes(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '"' {
		return false
	}
	text := d.text()
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		return false
	}
	*(*[]byte)(v) = b[:n]

	return true
}

// stringMapping reads a map[string]string.
func (p *plan) stringMapping(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '{' {
		return false
	}
	d.enter()
	m := map[string]string{}
	*(*map[string]string)(v) = m

	return d.stringMap(m)
}

func (p *plan) mapping(d *decoder, v unsafe.Pointer) bool {
	if d.b[d.i] != '{' {
		return false
	}
	d.enter()
	m := reflect.MakeMap(p.typ)
	p.pointerTo(v).Elem().Set(m)
	from, ok := p.spaces.Get().(*member)
	if !ok {
		from = &member{key: reflect.New(p.typ.Key()).Elem(), value: reflect.New(p.elem.typ).Elem()}
	}
	for d.more() {
		from.key.SetString(keys.string(d.key()))
		if !p.elem.value(d, from.value.Addr().UnsafePointer()) {
			return false
		}
		m.SetMapIndex(from.key, from.value)
		from.value.SetZero()
	}

	from.key.SetZero()
	p.spaces.Put(from)

	return true
}

// member is a member of a map that is being read. One that is not in use has the
// zero value.
type member struct{ key, value reflect.Value }

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

func (p *plan) any(d *decoder, v unsafe.Pointer) bool {
	*(*any)(v) = d.value()
	return true
}

// view returns b as a string that becomes invalid when b changes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
