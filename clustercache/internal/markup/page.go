// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup

import "strings"

// constant is a text that only a constant of the program can be: other packages
// cannot convert a variable to it.
type constant string

// Page is an HTML document that is being written. Its zero value is empty. It
// is for one goroutine.
type Page struct {
	out []byte
}

// Bytes returns what has been written.
func (p *Page) Bytes() []byte { return p.out }

// Document writes the type of the document and its root element.
func (p *Page) Document(content func()) {
	p.out = append(p.out, "<!DOCTYPE html>"...)
	p.Element(root, content)
}

// Style writes an element with a style sheet. It panics if the sheet would end
// the element.
func (p *Page) Style(sheet constant) {
	if strings.Contains(string(sheet), "</") {
		panic("markup: a style sheet ends its element")
	}
	p.Element(style, func() { p.out = append(p.out, sheet...) })
}

// Element writes an element. Whatever content writes is in it.
func (p *Page) Element(tag Tag, content func()) {
	p.begin(tag)
	content()
	p.out = append(p.out, "</"...)
	p.out = append(p.out, tag.name...)
	p.out = append(p.out, '>')
}

// Leaf writes an element that has only text.
func (p *Page) Leaf(tag Tag, parts ...string) {
	p.Element(tag, func() { p.Text(parts...) })
}

// Void writes an element that has no content.
func (p *Page) Void(tag Void) { p.begin(Tag(tag)) }

// Text writes text, escaped. What is not valid UTF-8, and what HTML has no
// notation for, becomes U+FFFD.
func (p *Page) Text(parts ...string) {
	for _, part := range parts {
		p.out = appendEscaped(p.out, part)
	}
}

// begin writes the start tag of an element, on a line of its own if the element
// is a block.
func (p *Page) begin(tag Tag) {
	if tag.block {
		p.out = append(p.out, '\n')
	}
	p.out = append(p.out, '<')
	p.out = append(p.out, tag.name...)
	p.out = append(p.out, tag.attributes...)
	p.out = append(p.out, '>')
}
