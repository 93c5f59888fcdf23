// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "iter"

// span is a range of bytes of an object; 32 bits keep an Item small.
type span struct{ from, to uint32 }

func spanOf(from, to int) span { return span{uint32(from), uint32(to)} }

// of returns the bytes that the span covers, with no capacity beyond them; nil
// if the span is zero.
func (s span) of(b []byte) []byte {
	if s.to == 0 {
		return nil
	}
	return b[s.from:s.to:s.to]
}

// each reads the members of the object at i. value reads the value at from,
// which has that key.
func (p *parser) each(i int, value func(key span, from int) int) int {
	if i = p.space(i + 1); p.at(i) == '}' {
		return i + 1
	}
	for more := true; more; {
		key, from := p.name(i)
		if from < 0 {
			return -1
		}
		if i = value(key, from); i < 0 {
			return -1
		}
		i, more = p.next(i, '}')
	}
	return i
}

// eachElement reads the elements of the array at i.
func (p *parser) eachElement(i int, value func(i int) int) int {
	if i = p.space(i + 1); p.at(i) == ']' {
		return i + 1
	}
	for more := true; more; {
		if i = value(i); i < 0 {
			return -1
		}
		i, more = p.next(i, ']')
	}
	return i
}

// next continues after a value that ended at i, in a container that ends with a
// byte. It returns the position of the next key or element and true, or the
// position after the container and false. A failure is -1 and false.
func (p *parser) next(i int, end byte) (int, bool) {
	switch i = p.space(i); p.at(i) {
	case ',':
		return p.space(i + 1), true
	case end:
		return i + 1, false
	}

	return p.badEnd(i), false
}

// name reads the key at i. It returns the key and the position of its value, or
// -1 after a failure.
func (p *parser) name(i int) (span, int) {
	if p.at(i) != '"' {
		return span{}, p.fail(i, "expected a key")
	}
	end := p.str(i)
	if end < 0 {
		return span{}, -1
	}
	colon := p.space(end)
	if p.at(colon) != ':' {
		return span{}, p.fail(colon, "expected a colon")
	}
	return spanOf(i, end), p.space(colon + 1)
}

// Members yields the keys and raw values of a valid JSON object, and nothing for
// any other input.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		p := parser{b: object}
		i := p.space(0)
		if p.at(i) != '{' {
			return
		}
		p.each(i, func(key span, from int) int {
			to := p.value(from)
			if to < 0 || !yield(unquote(key.of(object)), object[from:to:to]) {
				return -1
			}
			return to
		})
	}
}

// StringMap yields the keys and values of a JSON object of strings, such as the
// Labels of an [Item], in the order in which they are written. Null values are
// "". If a key appears twice, the later value counts.
func StringMap(object []byte) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, value := range Members(object) {
			if !yield(key, String(value)) {
				return
			}
		}
	}
}

// Lookup returns the value of name in a JSON object of strings, without
// building a map. A null value is "".
func Lookup(object []byte, name string) (string, bool) {
	var found []byte
	for key, value := range Members(object) {
		if key == name {
			found = value // the last one counts
		}
	}
	return String(found), found != nil
}

// Strings yields the elements of a JSON array of strings, and nothing for any
// other input.
func Strings(array []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		p := parser{b: array}
		i := p.space(0)
		if p.at(i) != '[' {
			return
		}
		p.eachElement(i, func(i int) int {
			end := p.value(i)
			if end < 0 || !yield(String(array[i:end])) {
				return -1
			}
			return end
		})
	}
}

// String returns the string that a valid JSON literal stands for; null is "".
func String(literal []byte) string {
	if len(literal) < 2 || literal[0] != '"' {
		return ""
	}
	return unquote(literal)
}
