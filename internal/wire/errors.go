// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strconv"
)

// FieldError indicates that a document is well-formed JSON but that one of its
// fields is missing, has the wrong type or has an unexpected value.
type FieldError struct {
	// Field is the path of the refused field, such as "metadata.name"; "" means
	// the document itself.
	Field string
	// Reason describes the problem. It never contains the value of a field
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

// ErrNoItems indicates that a document is an object without items. It may be a
// list from a server that omits empty fields.
var ErrNoItems error = &FieldError{"items", "is missing: not a list"}

// ResponseBytes is the What of a [LimitError] about Limits.Response.
const ResponseBytes = "response bytes"

// LimitError indicates that a document was refused because of its size, not its
// content.
type LimitError struct {
	// What names the limit: "object bytes", "bytes of one object" if that was
	// passed, "response bytes", "bytes of white space" or "nesting depth".
	What string
	// Limit is the value of the limit.
	Limit int64
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("more than %d %s", e.Limit, e.What)
}

// SyntaxError indicates that a document is not well-formed JSON, or does not
// have the expected shape.
type SyntaxError struct {
	// Offset is the position of the refused byte, counted from the beginning of
	// the object (Scan) or of the body (readers).
	Offset int64
	// Reason describes the problem. It never quotes the document.
	Reason string
	// Err is io.ErrUnexpectedEOF if the document was cut off, or else nil.
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

// Excerpt quotes a remote name for an error. The result is bounded and contains
// only printable ASCII.
func Excerpt(s string) string {
	if len(s) <= excerptLen {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:excerptLen]) + "..."
}
