// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustername renders the keys of clusters for logs, errors and the
// labels of metrics.
package clustername

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// hub is the name of the zero key.
const hub = "hub"

// Of returns the name of a cluster: "hub" for the zero key, the name where
// there is no namespace, namespace/name otherwise. Two keys never have one
// name, since labels of metrics must not collide: a name without a namespace
// that would read as something else gets a leading slash. It is valid UTF-8 and
// has no control characters: those are written as %XX, and so are the percent
// sign itself, and a slash in a namespace.
func Of(key types.NamespacedName) string {
	if key == (types.NamespacedName{}) {
		return hub
	}
	name := escape(key.Name, false)
	if key.Namespace == "" && name != hub && !strings.Contains(name, "/") {
		return name
	}
	return escape(key.Namespace, true) + "/" + name
}

func escape(text string, slash bool) string {
	plain := func(r rune, size int) bool {
		return (r != utf8.RuneError || size > 1) && !unicode.IsControl(r) && r != '%' && (r != '/' || !slash)
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if plain(r, size) {
			out.WriteString(text[i : i+size])
		} else {
			fmt.Fprintf(&out, "%%%X", []byte(text[i:i+size]))
		}
		i += size
	}
	return out.String()
}
