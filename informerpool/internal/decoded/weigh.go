// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package decoded

import (
	"math/bits"
	"reflect"
	"time"
)

const (
	// mapHeader and mapSlots are the memory of each map that is not empty: its
	// header, and the slots of its first group.
	mapHeader = 48
	mapSlots  = 8
)

// weigh returns the approximate memory of a Go value and everything it points
// to, and stops counting beyond the limit. The JSON is a poor measure: the
// three bytes of an empty object in a list may decode to a struct of a
// thousand.
func weigh(value any, limit int64) int64 {
	s := scales{left: limit}
	s.add(reflect.ValueOf(value))
	return limit - s.left
}

type scales struct{ left int64 }

// take weighs n bytes of one allocation.
func (s *scales) take(n uintptr) { s.left -= int64((n + 15) &^ 15) }

// add weighs everything a value points to; the value itself is part of its
// container.
func (s *scales) add(v reflect.Value) {
	if s.left < 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		s.take(uintptr(v.Len()))
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() { // locations are shared
			s.take(v.Type().Elem().Size())
			s.add(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			s.take(v.Elem().Type().Size())
			s.add(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			s.add(field)
		}
	case reflect.Slice:
		s.take(uintptr(v.Cap()) * v.Type().Elem().Size())
		s.elements(v)
	case reflect.Array:
		s.elements(v)
	case reflect.Map:
		s.entries(v)
	}
}

// elements weighs everything the elements of a list point to.
func (s *scales) elements(v reflect.Value) {
	if !points(v.Type().Elem()) {
		return
	}
	for i := 0; i < v.Len() && s.left >= 0; i++ {
		s.add(v.Index(i))
	}
}

// entries weighs a map: at most seven of eight slots are used, and their number
// is a power of two.
func (s *scales) entries(v reflect.Value) {
	if v.Len() == 0 {
		return
	}
	slots := uintptr(mapSlots)
	if v.Len() > mapSlots {
		slots = 1 << bits.Len(uint(v.Len()*8/7))
	}
	s.take(mapHeader)
	s.take(slots * (1 + v.Type().Key().Size() + v.Type().Elem().Size()))
	for at := v.MapRange(); at.Next() && s.left >= 0; {
		s.add(at.Key())
		s.add(at.Value())
	}
}

// points reports whether values of the type may point to something. It is
// cheap, not exact: only false is certain.
func points(t reflect.Type) bool {
	k := t.Kind()
	return k > reflect.Complex128 || k == reflect.Invalid
}
