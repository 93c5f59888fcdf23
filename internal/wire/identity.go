// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/json"

// Identity identifies the object in a document and its state, as far as they
// can be read. If the object is refused, nothing else is known about it. A
// field that is missing, too long or not a string is empty.
type Identity struct {
	Kind, Namespace, Name, UID, ResourceVersion string
}

// Identity returns the complete identity of the item.
func (it *Item) Identity() Identity {
	return Identity{it.Kind, it.Namespace, it.Name, it.UID, it.ResourceVersion}
}

// Identify reads the identity of an object that Scan refuses. The result is a
// claim, not a validated name: it can be used to report which object is
// unknown, and must not enter a store.
func Identify(object []byte) Identity {
	c := capture{base: 1}
	c.feed(object)
	return c.found
}

const (
	// captureMax is the maximum length of an identity field that is kept.
	captureMax = 4 << 10
	// captureDepth is the maximum depth of an identity field: in the metadata
	// of an object in a watch frame.
	captureDepth = 3
)

// capture finds the identity in an object that arrives in pieces and is not
// kept. It does not validate. The object's members are at depth base.
type capture struct {
	base   int
	depth  int
	arrays [captureDepth + 1]bool // whether the container at a depth is an array
	keys   [captureDepth + 1]string
	isKey  bool // the next string is a key

	inString, escaped bool
	long              bool
	space             int    // white space in a row
	text              []byte // the current string so far, with its escapes
	found             Identity
	kind              string // of the frame
}

// feed processes the next piece.
func (c *capture) feed(b []byte) {
	for _, x := range b {
		if c.inString {
			c.char(x)
			continue
		}
		if isSpace(x) {
			c.space++
			continue
		}
		c.space = 0
		switch x {
		case '"':
			c.inString, c.long, c.text = true, false, c.text[:0]
		case '{', '[':
			if c.depth++; c.depth <= captureDepth {
				c.arrays[c.depth], c.keys[c.depth] = x == '[', ""
			}
			c.isKey = x == '{'
		case '}', ']':
			c.depth--
			c.isKey = false
		case ':':
			c.isKey = false
		case ',':
			c.isKey = c.depth >= 1 && c.depth <= captureDepth && !c.arrays[c.depth]
		}
	}
}

// char processes a byte of a string.
func (c *capture) char(x byte) {
	switch {
	case c.escaped:
		c.escaped = false
	case x == '\\':
		c.escaped = true
	case x == '"':
		c.inString = false
		c.ended()
		return
	}

	if c.depth > captureDepth || c.depth < 1 {
		return
	}
	if len(c.text) == captureMax {
		c.long = true
		return
	}
	c.text = append(c.text, x)
}

// ended processes a complete string.
func (c *capture) ended() {
	if c.depth > captureDepth || c.depth < 1 || c.arrays[c.depth] {
		return
	}
	text := ""
	if !c.long && json.Unmarshal([]byte(`"`+string(c.text)+`"`), &text) != nil {
		text = ""
	}
	if c.isKey {
		c.keys[c.depth] = text
		return
	}
	if into := c.field(); into != nil {
		*into = text
	}
}

// field returns where the string at the current position is to be stored, or
// nil.
func (c *capture) field() *string {
	key := c.keys[c.depth]
	switch {
	case c.base == 2 && c.depth == 1 && key == "type":
		return &c.kind
	case c.base == 2 && c.keys[1] != "object" || c.arrays[c.base]:
		return nil
	case c.depth == c.base && key == "kind":
		return &c.found.Kind
	case c.depth != c.base+1 || c.keys[c.base] != "metadata":
		return nil
	}

	switch key {
	case "namespace":
		return &c.found.Namespace
	case "name":
		return &c.found.Name
	case "uid":
		return &c.found.UID
	case "resourceVersion":
		return &c.found.ResourceVersion
	}

	return nil
}

// appendStub appends an object that contains only the identity.
func (id Identity) appendStub(dst []byte) []byte {
	dst = appendJSON(append(dst, `{"kind":`...), id.Kind)
	dst = appendJSON(append(dst, `,"metadata":{"namespace":`...), id.Namespace)
	dst = appendJSON(append(dst, `,"name":`...), id.Name)
	dst = appendJSON(append(dst, `,"uid":`...), id.UID)
	dst = appendJSON(append(dst, `,"resourceVersion":`...), id.ResourceVersion)

	return append(dst, "}}"...)
}

func appendJSON(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // marshaling a string never fails
	return append(dst, quoted...)
}

// pass reads, in bounded memory, to the end of a value that is too large to be
// kept. The splitter has already seen the pending bytes. pass fails with a
// LimitError if the value has more than limit bytes.
func (w *window) pass(split *splitter, done bool, end int, limit int64, c *capture) error {
	c.feed(w.pending()[:end])
	for read := int64(end); !done; read += int64(end) {
		if read > limit {
			return &LimitError{What: "bytes of one object", Limit: limit}
		}
		w.pos = w.end
		if err := w.checkSpace(c.space); err != nil {
			return err
		}
		if err := w.fill(); err != nil {
			return err
		}
		b := w.pending()
		end, done = split.scan(b, 0)
		c.feed(b[:end])
	}

	w.pos += end
	return nil
}
