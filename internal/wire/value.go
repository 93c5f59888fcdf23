// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// parser validates JSON in one slice. Its methods take the position where a
// construct begins and return the position after it, or -1 after a failure,
// which err then describes.
type parser struct {
	b   []byte
	err error
}

// fail records the first failure.
func (p *parser) fail(i int, reason string) int {
	if p.err == nil {
		p.err = &SyntaxError{Offset: int64(i), Reason: reason}
	}
	return -1
}

// refuse records that a field violates a requirement.
func (p *parser) refuse(field, reason string) int {
	if p.err == nil {
		p.err = &FieldError{Field: field, Reason: reason}
	}
	return -1
}

// space skips white space.
func (p *parser) space(i int) int {
	for i < len(p.b) && p.b[i] <= ' ' && isSpace(p.b[i]) {
		i++
	}
	return i
}

// at returns the byte at i, or 0 beyond the end.
func (p *parser) at(i int) byte {
	if i < len(p.b) {
		return p.b[i]
	}
	return 0
}

// value skips one value that begins at i.
func (p *parser) value(i int) int {
	c := p.at(i)
	if c == '{' || c == '[' {
		return p.container(i)
	}
	return p.scalar(i, c)
}

// scalar skips a string, number or literal that begins with c.
func (p *parser) scalar(i int, c byte) int {
	switch {
	case c == '"':
		return p.str(i)
	case c == '-' || '0' <= c && c <= '9':
		return p.number(i)
	case c == 't':
		return p.literal(i, "true")
	case c == 'f':
		return p.literal(i, "false")
	case c == 'n':
		return p.literal(i, "null")
	case i >= len(p.b):
		return p.fail(i, "unexpected end")
	default:
		return p.fail(i, "expected a value")
	}
}

func (p *parser) literal(i int, lit string) int {
	if len(p.b)-i < len(lit) || string(p.b[i:i+len(lit)]) != lit {
		return p.fail(i, "invalid literal")
	}
	return i + len(lit)
}

// container skips the object or array that begins at i. It keeps its own stack,
// so that hostile nesting costs no goroutine stack.
func (p *parser) container(i int) int {
	var usual [64]bool
	outer := usual[:0] // whether the open containers around the innermost one are arrays
	array := false     // whether the innermost one is
	for {
		c := p.at(i)
		if c == '{' || c == '[' {
			if len(outer) == MaxDepth {
				p.err = &LimitError{What: "nesting depth", Limit: MaxDepth}
				return -1
			}
			outer, array = append(outer, array), c == '['
			i = p.space(i + 1)
			if p.at(i) != c+2 { // '}' and ']' follow their opening bracket by two
				if !array {
					_, i = p.name(i)
				}
				if i < 0 {
					return -1
				}
				continue
			}
		} else if i = p.scalar(i, c); i < 0 {
			return -1
		}

		for i = p.space(i); p.at(i) != ','; i = p.space(i) {
			if i >= len(p.b) || array && p.b[i] != ']' || !array && p.b[i] != '}' {
				return p.badEnd(i)
			}
			i++
			last := len(outer) - 1
			if last == 0 {
				return i
			}
			outer, array = outer[:last], outer[last]
		}

		if i = p.space(i + 1); !array {
			_, i = p.name(i)
		}
		if i < 0 {
			return -1
		}
	}
}

func (p *parser) badEnd(i int) int {
	if i >= len(p.b) {
		return p.fail(i, "unexpected end")
	}
	return p.fail(i, "expected a comma or the end of the object or array")
}
