// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"io"
	"log/slog"
)

// String returns the kind, the namespace and the name, as in
// "Secret default/token". So does every verb of fmt, and so do loggers: the
// content may be a secret.
func (o *Object) String() string {
	if o == nil {
		return "<nil>"
	}
	kind := o.kind.GVK().Kind + " "
	if ns := o.GetNamespace(); ns != "" {
		return kind + ns + "/" + o.GetName()
	}
	return kind + o.GetName()
}

// Format implements fmt.Formatter. Verbs such as %#v and %d, for which fmt does
// not call String, would print the packed content.
func (o *Object) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = fmt.Fprintf(s, "%q", o.String())
		return
	}
	_, _ = io.WriteString(s, o.String())
}

// MarshalLog implements logr.Marshaler.
func (o *Object) MarshalLog() any { return o.String() }

// LogValue implements slog.LogValuer.
func (o *Object) LogValue() slog.Value { return slog.StringValue(o.String()) }
