// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup

import (
	"strconv"
	"strings"
)

// Tag is an element's name and attributes. Its methods return a tag with one
// attribute more.
type Tag struct {
	name       string
	block      bool   // begins on a line of its own
	attributes string // escaped, each after a space
}

// Void is the Tag of an element without content.
type Void Tag

// The elements of a page.
var (
	Head  = Tag{name: "head", block: true}
	Title = Tag{name: "title", block: true}
	Body  = Tag{name: "body", block: true}

	H1  = Tag{name: "h1", block: true}
	H2  = Tag{name: "h2", block: true}
	P   = Tag{name: "p", block: true}
	Div = Tag{name: "div", block: true}
	Nav = Tag{name: "nav", block: true}

	A    = Tag{name: "a"}
	B    = Tag{name: "b"}
	Span = Tag{name: "span"}

	DL = Tag{name: "dl", block: true}
	DT = Tag{name: "dt", block: true}
	DD = Tag{name: "dd"}

	Table = Tag{name: "table", block: true}
	TR    = Tag{name: "tr", block: true}
	TH    = Tag{name: "th"}
	TD    = Tag{name: "td"}

	Form   = Tag{name: "form", block: true}
	Button = Tag{name: "button", block: true}
	Input  = Void{name: "input", block: true}

	Meta = Void{name: "meta", block: true}
)

var (
	root  = Tag{name: "html", block: true}.Fixed("lang", "en")
	style = Tag{name: "style", block: true}
)

// Fixed adds an attribute that the program has as constants.
func (t Tag) Fixed(name, value constant) Tag { return t.with(name, string(value)) }

// Fixed is like that of [Tag].
func (v Void) Fixed(name, value constant) Void { return Void(Tag(v).Fixed(name, value)) }

// Class adds the class attribute.
func (t Tag) Class(names ...string) Tag { return t.with("class", strings.Join(names, " ")) }

// Link adds the address that a link leads to.
func (t Tag) Link(to Address) Tag { return t.with("href", to.text) }

// Field adds the name and the value of a form's field.
func (v Void) Field(name, value string) Void {
	return Void(Tag(v).with("name", name).with("value", value))
}

// Number adds an attribute that is a number.
func (v Void) Number(name constant, n int) Void { return Void(Tag(v).with(name, strconv.Itoa(n))) }

func (t Tag) with(name constant, value string) Tag {
	out := append([]byte(t.attributes+" "+string(name)), `="`...)
	t.attributes = string(append(appendEscaped(out, value), '"'))
	return t
}
