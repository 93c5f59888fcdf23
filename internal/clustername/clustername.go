// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustername orders the keys of clusters, and renders them for logs,
// errors and the labels of metrics.
//
// # Tests
//
// The leading test is TestNamesNeverCollide.
package clustername

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// hub is the name of the zero key.
const hub = "hub"

// Of returns the name of a cluster: "hub" for the zero key, the name if there
// is no namespace, and namespace/name otherwise. Different keys have different
// names, since labels of metrics must not collide: a name without a namespace
// that would look like another key gets a leading slash. The result is valid
// UTF-8 without control characters. Those are written as %XX, and so are
// percent signs, and slashes in a namespace.
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

// Parse returns the cluster of a name. It is the inverse of [Of]; the result is
// false for a text that no cluster has as its name.
func Parse(name string) (types.NamespacedName, bool) {
	if name == hub {
		return types.NamespacedName{}, true
	}
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		namespace, rest = "", name
	}
	key := types.NamespacedName{Namespace: unescape(namespace), Name: unescape(rest)}
	return key, Of(key) == name
}

// Compare orders keys by namespace and name.
func Compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Omit returns the text of an error without the name of a cluster, for messages
// that name the cluster already. The errors of the transport and of resolvers
// include the name, since they also appear alone.
func Omit(name string, err error) string {
	prefixes := strings.NewReplacer("cluster "+strconv.Quote(name)+": ", "", "cluster "+name+": ", "")
	return prefixes.Replace(fmt.Sprint(err))
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
			for _, b := range []byte(text[i : i+size]) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
		}
		i += size
	}

	return out.String()
}

// unescape undoes escape. It leaves percent signs that escape does not write.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				out.WriteByte(byte(code))
				i += 2
				continue
			}
		}
		out.WriteByte(text[i])
	}

	return out.String()
}
