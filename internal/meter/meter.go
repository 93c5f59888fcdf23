// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
)

const (
	// maxDepth is how deep decoders allow objects and arrays to be nested.
	maxDepth = 10000
	// maxSpace is how much white space may appear between two tokens.
	maxSpace = 1 << 20
	// maxName bounds the keys that are looked up: no field has a longer name.
	maxName = 512
	// excessive is the cost of a document that must be refused under any limit.
	excessive = math.MaxInt64 / 4
)

// Meter estimates the cost of one document, or the total of several in a row.
// It is not safe for concurrent use.
type Meter struct {
	root  target
	cost  int64
	stack []frame
	state state
	space int

	key     []byte // of the current member; longer ones are truncated
	escaped bool   // the current string contains an escape
	isKey   bool   // the current string is a key
	length  int64  // of the current string
	slot    target // where the value of the current member goes
	label   *string
	value   []byte // of the current label

	apiVersion, kind string
	namespace, name  string
	uid, version     string // of the metadata
	detailsUID       string // of a Status
}

// frame is an open object or array.
type frame struct {
	target  *plan
	array   bool
	key     bool  // the next string is a key
	meta    bool  // it is the document's metadata
	details bool  // it is a Status's details
	entries int64 // so far
}

type state uint8

const (
	between state = iota
	inString
	inEscape
	inLiteral
)

// New returns a meter for documents that are decoded into t.
func New(t reflect.Type) *Meter { return &Meter{root: targetOf(t)} }

// Cost returns the estimate in bytes, the total for all documents so far.
func (m *Meter) Cost() int64 { return m.cost }

// TypeMeta returns the apiVersion and kind of the last document.
func (m *Meter) TypeMeta() (apiVersion, kind string) { return m.apiVersion, m.kind }

// Named returns the namespace and name in the metadata of the last document.
func (m *Meter) Named() (namespace, name string) { return m.namespace, m.name }

// Identified returns the uid and the resourceVersion of the object that the
// last document contains, or the uid of the one that it is a Status about.
func (m *Meter) Identified() (uid, version string) {
	if m.kind == "Status" && (m.apiVersion == "" || m.apiVersion == "v1") && m.detailsUID != "" {
		return m.detailsUID, ""
	}
	return m.uid, m.version
}

// Next prepares the meter for the next document.
func (m *Meter) Next() {
	m.stack, m.state, m.space = m.stack[:0], between, 0
	m.apiVersion, m.kind, m.label = "", "", nil
	m.namespace, m.name = "", ""
	m.uid, m.version, m.detailsUID = "", "", ""
}

// Feed processes the next bytes of the document.
func (m *Meter) Feed(p []byte) {
	for i := 0; i < len(p); {
		switch m.state {
		case inString:
			i = m.characters(p, i)
		case inEscape:
			m.character(p[i])
			m.state = inString
			i++
		case inLiteral:
			for i < len(p) && !delimits(p[i]) {
				i++
			}
			if i < len(p) {
				m.state = between
			}
		case between:
			m.token(p[i])
			i++
		}
	}
}

func delimits(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\t' || c == '\r'
}

// characters processes the bytes of a string, up to its end if p contains it.
func (m *Meter) characters(p []byte, i int) int {
	from := i
	for i < len(p) && p[i] != '"' && p[i] != '\\' {
		i++
	}
	m.length += int64(i - from)
	m.keep(p[from:i])
	switch {
	case i == len(p):
		return i
	case p[i] == '"':
		m.endString()
		return i + 1
	}

	m.escaped = true
	m.character('\\')
	m.state = inEscape

	return i + 1
}

func (m *Meter) character(c byte) {
	m.length++
	m.keep([]byte{c})
}

// keep stores the bytes of a key or of a label's value.
func (m *Meter) keep(p []byte) {
	switch {
	case m.isKey:
		m.key = append(m.key, p[:min(len(p), maxName-len(m.key))]...)
	case m.label != nil:
		m.value = append(m.value, p[:min(len(p), maxName-len(m.value))]...)
	}
}

// token processes a byte between strings and literals.
func (m *Meter) token(c byte) {
	if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
		if m.space++; m.space > maxSpace {
			m.cost = excessive
		}
		return
	}

	m.space = 0
	switch c {
	case '{', '[':
		m.open(m.begin(), c == '[')
	case '}', ']':
		if len(m.stack) > 0 {
			m.stack = m.stack[:len(m.stack)-1]
		}
	case ',':
		if f := m.top(); f != nil {
			f.key = !f.array
		}
	case ':':
	case '"':
		m.beginString()
	default:
		if to := m.begin(); to.plan != nil && to.plan.shape == dynamic {
			m.add(2 * word)
		}
		m.state = inLiteral
	}
}

func (m *Meter) top() *frame {
	if len(m.stack) == 0 {
		return nil
	}
	return &m.stack[len(m.stack)-1]
}

// begin counts a value and the element that holds it, and returns where it
// goes.
func (m *Meter) begin() target {
	f := m.top()
	if f == nil {
		m.add(m.root.extra)
		return m.root
	}
	if f.target == nil {
		return target{}
	}
	to := m.slot
	if f.array {
		to = m.element(f)
	}
	m.add(to.extra)

	return to
}

// element counts an element of an array.
func (m *Meter) element(f *frame) target {
	switch f.target.shape {
	case list:
		m.add(f.target.each)
		return f.target.elem
	case dynamic:
		m.add(grown(anySize))
		return target{plan: f.target}
	case opaque:
		m.add(f.target.worst)
		return target{plan: f.target}
	default:
		return target{}
	}
}

func (m *Meter) add(n int64) { m.cost = min(m.cost+n, excessive) }

// open begins an object or an array.
func (m *Meter) open(to target, array bool) {
	if len(m.stack) >= maxDepth {
		m.cost = excessive
		return
	}
	if to.plan != nil {
		switch to.plan.shape {
		case table, dynamic:
			m.add(mapHeader)
		case opaque:
			m.add(4 * word)
			to = m.alternative(to, array)
		default:
		}
	}

	member := !array && len(m.stack) == 1 && !m.stack[0].array // of the document
	m.stack = append(m.stack, frame{
		target:  to.plan,
		array:   array,
		key:     !array,
		meta:    member && string(m.key) == "metadata",
		details: member && string(m.key) == "details",
	})
}

// alternative returns how an opaque value decodes an object or an array.
func (m *Meter) alternative(to target, array bool) target {
	known := to.plan.object
	if array {
		known = to.plan.array
	}
	if known.plan == nil {
		return to
	}
	m.add(known.extra)
	return known
}

// beginString begins a key or a value.
func (m *Meter) beginString() {
	m.state, m.escaped, m.length, m.label = inString, false, 0, nil
	f := m.top()
	m.isKey = f != nil && f.key
	if m.isKey {
		m.key = m.key[:0]
		return
	}
	if to := m.begin(); to.plan != nil && to.plan.shape != structure {
		m.add(stringCost(to.plan.shape))
	} else if to.plan == nil {
		m.length = math.MinInt64 / 2 // skipped
	}
	m.label, m.value = m.labelOf(f), m.value[:0]
}

// labelOf returns where to store the string value of the current member, or nil
// if the meter does not report it.
func (m *Meter) labelOf(f *frame) *string {
	switch {
	case f == nil || f.array:
	case len(m.stack) == 1 && string(m.key) == "kind":
		return &m.kind
	case len(m.stack) == 1 && string(m.key) == "apiVersion":
		return &m.apiVersion
	case f.meta && string(m.key) == "name":
		return &m.name
	case f.meta && string(m.key) == "namespace":
		return &m.namespace
	case f.meta && string(m.key) == "uid":
		return &m.uid
	case f.meta && string(m.key) == "resourceVersion":
		return &m.version
	case f.details && string(m.key) == "uid":
		return &m.detailsUID
	}

	return nil
}

// stringCost returns the memory of a string apart from its bytes.
func stringCost(s shape) int64 {
	if s == dynamic {
		return stringSize + 2*word
	}
	return 2 * word
}

// endString ends a key or a value.
func (m *Meter) endString() {
	m.state = between
	if m.isKey {
		m.endKey()
		return
	}
	if m.length > 0 {
		m.add(m.length)
	}
	if m.label != nil {
		*m.label = unescaped(m.value, m.escaped)
		m.label = nil
	}
}

// endKey determines where the value of a member goes, and counts its entry.
func (m *Meter) endKey() {
	f := m.top()
	f.key, m.slot = false, target{}
	if m.escaped {
		m.key = append(m.key[:0], unescaped(m.key, true)...)
	}
	if f.target == nil {
		return
	}
	f.entries++

	switch f.target.shape {
	case structure:
		m.slot = f.target.member(m.key)
	case table:
		m.slot = f.target.elem
		m.add(entryCost(f.entries, f.target.each) + m.length + 2*word)
	case dynamic:
		m.slot = target{plan: f.target}
		m.add(entryCost(f.entries, stringSize+anySize) + m.length + 2*word)
	case opaque:
		m.slot = target{plan: f.target}
		m.add(f.target.worst + m.length + 2*word)
	default:
	}
}

// entryCost returns how much memory the n-th entry adds to a map if a slot
// takes each bytes. Maps have slots for eight entries, and are reallocated at
// twice the size.
func entryCost(n, each int64) int64 {
	switch {
	case n == 1:
		return mapSlots*each + 2*word
	case n <= mapSlots:
		return 0
	case n == mapSlots+1:
		return 2*mapSlots*each + 16*word
	}

	return each * 7 / 2
}

// member returns where a member of a structure goes. Some decoders ignore case.
func (p *plan) member(key []byte) target {
	if to, ok := p.fields[string(key)]; ok {
		return to
	}
	for name, to := range p.fields {
		if len(name) == len(key) && strings.EqualFold(name, string(key)) {
			return to
		}
	}
	return target{}
}

func unescaped(b []byte, escaped bool) string {
	if !escaped {
		return string(b)
	}
	var out string
	if json.Unmarshal([]byte(`"`+string(b)+`"`), &out) != nil {
		return string(b)
	}
	return out
}

// Decode decodes a document unless that takes more than limit bytes of memory.
// In that case it decodes nothing and returns false.
func Decode(doc []byte, into any, limit int64) (fits bool, err error) {
	m := New(reflect.TypeOf(into))
	m.Feed(doc)
	if m.Cost() > limit {
		return false, nil
	}
	return true, json.Unmarshal(doc, into)
}
