// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// document is the content of one discovery path, in the server's order of
// preference. It is immutable and shared.
type document struct {
	groups []group
}

type group struct {
	name     string
	versions []version
}

type version struct {
	name string
	// stale reports that the server could not reach the extension server behind
	// the version at the time.
	stale     bool
	resources []resource
}

type resource struct {
	name       string // plural
	singular   string
	kind       string
	namespaced bool
	lacks      Verbs
}

// Verbs are the verbs of a resource that determine how its objects can be read.
type Verbs uint8

// Verbs of a resource.
const (
	Get Verbs = 1 << iota
	List
	Watch

	allVerbs = Get | List | Watch
)

// lacking returns which of these verbs a resource lacks. If a document names no
// verbs at all, the resource is presumed to have all of them.
func lacking(names []string) Verbs {
	if len(names) == 0 {
		return 0
	}
	var v Verbs
	for _, name := range names {
		switch name {
		case "get":
			v |= Get
		case "list":
			v |= List
		case "watch":
			v |= Watch
		}
	}

	return allVerbs &^ v
}

// version returns the version of that name, or nil.
func (g *group) version(name string) *version {
	return first(g.versions, func(v version) bool { return v.name == name })
}

// first returns the first of those that match, or nil.
func first[T any](of []T, match func(T) bool) *T {
	if i := slices.IndexFunc(of, match); i >= 0 {
		return &of[i]
	}
	return nil
}

// kind returns the resource that serves the kind, or nil. There may be several,
// for example a create-only resource whose response has the same kind as the
// real resource. kind then prefers the one with the most verbs that readers
// need, then the one whose name is the kind's plural, then the first.
func (v *version) kind(kind string) *resource {
	var best *resource
	for i := range v.resources {
		r := &v.resources[i]
		if r.kind == kind && (best == nil || r.betterThan(best)) {
			best = r
		}
	}

	return best
}

func (r *resource) betterThan(other *resource) bool {
	if a, b := r.lacks.rank(), other.lacks.rank(); a != b {
		return a < b
	}
	return r.isNamesake() && !other.isNamesake()
}

// rank orders sets of verbs by how much readers lose without them.
func (v Verbs) rank() int {
	rank := 0
	for i, verb := range []Verbs{Get, Watch, List} { // later ones weigh more
		if v&verb != 0 {
			rank |= 1 << i
		}
	}
	return rank
}

// isNamesake reports whether the name is the usual plural of the kind.
func (r *resource) isNamesake() bool {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: r.kind})
	return r.name == plural.Resource
}

// resource returns the resource with the given plural name, or nil.
func (v *version) resource(name string) *resource {
	return first(v.resources, func(r resource) bool { return r.name == name })
}

// fingerprint identifies the content of a document.
type fingerprint [sha256.Size]byte

func (d *document) fingerprint() fingerprint {
	return sha256.Sum256(fmt.Appendf(nil, "%#v", d.groups))
}
