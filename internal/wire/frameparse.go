// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// Compact frames consist of prefix, the type, infix, the object and one brace.
const (
	compactPrefix = `{"type":"`
	compactInfix  = `","object":`
)

// parseCompact parses a frame as Kubernetes writes it: type and object, in this
// order, and nothing else. The splitter's counts prove that there is nothing
// else: there is one container at depth one, and it ends right before the frame
// does.
func parseCompact(raw []byte, split *splitter) (Frame, bool) {
	// The splitter counts brackets of any kind.
	if split.inner != 1 || split.innerEnd != len(raw)-1 || raw[len(raw)-1] != '}' {
		return Frame{}, false
	}
	kind, from := compactStart(raw)
	if kind == "" || raw[from] != '{' {
		return Frame{}, false
	}
	return Frame{Type: kind, Object: raw[from : len(raw)-1 : len(raw)-1]}, true
}

// compactStart parses a compact frame up to its object. It returns the type and
// the position of the object, which is inside b, or "".
func compactStart(b []byte) (string, int) {
	if !bytes.HasPrefix(b, []byte(compactPrefix)) {
		return "", 0
	}
	rest := b[len(compactPrefix):]
	quote := bytes.IndexByte(rest[:min(len(rest), excerptLen)], '"')
	if quote < 0 {
		return "", 0
	}
	from := len(compactPrefix) + quote + len(compactInfix)
	if from >= len(b) || !bytes.HasPrefix(rest[quote:], []byte(compactInfix)) {
		return "", 0
	}
	return frameType(rest[:quote]), from
}

// parseFrame reads any frame.
func parseFrame(raw []byte) (Frame, error) {
	p := parser{b: raw}
	var kind, object []byte
	end := p.each(0, func(key span, from int) int {
		end := p.value(from)
		if end < 0 {
			return -1
		}
		switch string(plainKey(key.of(raw))) {
		case `"type"`:
			kind = raw[from:end:end]
		case `"object"`:
			object = raw[from:end:end]
		}
		return end
	})
	if end < 0 {
		return Frame{}, p.err
	}
	return newFrame(kind, object)
}

// newFrame checks the fields found in a frame.
func newFrame(kind, object []byte) (Frame, error) {
	switch {
	case len(kind) == 0 || kind[0] != '"':
		return Frame{}, &FieldError{"type", "is missing or not a string"}
	case len(object) == 0 || object[0] != '{':
		return Frame{}, &FieldError{"object", "is missing or not an object"}
	}

	name := unquote(kind)
	if known := frameType([]byte(name)); known != "" {
		return Frame{Type: known, Object: object}, nil
	}
	return Frame{}, &FieldError{"type", "is " + Excerpt(name) + ", which is no event type"}
}

// frameType interns the type of a frame. It returns "" for an unknown type.
func frameType(b []byte) string {
	for _, known := range [...]string{Added, Modified, Deleted, Bookmark, Error} {
		if string(b) == known {
			return known
		}
	}
	return ""
}
