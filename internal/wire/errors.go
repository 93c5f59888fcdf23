// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strconv"
)

// FieldError indicates that a document is well-formed JSON but one of its
// fields is missing, has the wrong type or is not what was expected.
type FieldError struct {
	// Field is the path of the refused field, such as "metadata.name"; "" is
	// the document itself.
	Field string
	// Reason says what is wrong with it. It never holds the value of a field
	// other than the kind, the API version, the name or the namespace.
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return "document " + e.Reason
	}
	return e.Field + " " + e.Reason
}

// ErrNoItems indicates that a document is an object without items, as a list is
// whose server leaves out what is empty.
var ErrNoItems error = &FieldError{"items", "is missing: not a list"}

// ResponseBytes is What a [LimitError] of Limits.Response names.
const ResponseBytes = "response bytes"

// LimitError indicates that a document was refused for its size, not its
// content.
type LimitError struct {
	// What names the limit: "object bytes", "bytes of one object" where that
	// was passed, "response bytes", "bytes of white space" or "nesting depth".
	What string
	// Limit is its value.
	Limit int64
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("more than %d %s", e.Limit, e.What)
}

// SyntaxError indicates that a document is not well-formed JSON, or not the
// shape of document that was expected where it was read.
type SyntaxError struct {
	// Offset is the position of the refused byte, counted from the beginning of
	// the object (Scan) or of the body (readers).
	Offset int64
	// Reason says what was wrong; it never quotes the document.
	Reason string
	// Err is io.ErrUnexpectedEOF if the document was cut off, else nil.
	Err error
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.FormatInt(e.Offset, 10) + ": " + e.Reason
}

// Unwrap returns Err.
func (e *SyntaxError) Unwrap() error { return e.Err }

// excerptLen bounds how much of a remote name appears in an error.
const excerptLen = 64

// Excerpt quotes a remote name for an error: printable ASCII only, bounded.
func Excerpt(s string) string {
	if len(s) <= excerptLen {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:excerptLen]) + "..."
}
