// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
)

// document is what one discovery path said, in order of preference as served. It is immutable and shared.
type document struct {
	groups []group
}

type group struct {
	name     string
	versions []version
}

type version struct {
	name string
	// stale says that the server could not ask the extension server behind the version just then.
	stale     bool
	resources []resource
}

type resource struct {
	name       string // plural
	singular   string
	kind       string
	namespaced bool
}

// version returns the version of that name, or nil.
func (g *group) version(name string) *version {
	i := slices.IndexFunc(g.versions, func(v version) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &g.versions[i]
}

// kind returns the resource that serves the kind, or nil.
func (v *version) kind(kind string) *resource {
	i := slices.IndexFunc(v.resources, func(r resource) bool { return r.kind == kind })
	if i < 0 {
		return nil
	}
	return &v.resources[i]
}

// resource returns the resource of that plural name, or nil.
func (v *version) resource(name string) *resource {
	i := slices.IndexFunc(v.resources, func(r resource) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &v.resources[i]
}

// fingerprint identifies the content of a document.
type fingerprint [sha256.Size]byte

func (d *document) fingerprint() fingerprint {
	h := sha256.New()
	var line []byte
	for _, g := range d.groups {
		for _, v := range g.versions {
			line = strconv.AppendQuote(line[:0], g.name)
			line = strconv.AppendQuote(line, v.name)
			line = strconv.AppendBool(line, v.stale)
			h.Write(line)
			for _, r := range v.resources {
				line = strconv.AppendQuote(line[:0], r.name)
				line = strconv.AppendQuote(line, r.singular)
				line = strconv.AppendQuote(line, r.kind)
				line = strconv.AppendBool(line, r.namespaced)
				h.Write(line)
			}
		}
	}
	return fingerprint(h.Sum(nil))
}

// compacted returns a copy of d whose strings share one allocation and whose slices have no spare room.
func (d *document) compacted() *document {
	var c compactor
	d.eachString(c.measure)
	text := c.text.String()
	intern := func(s string) string { return text[c.at[s] : c.at[s]+len(s)] }
	out := &document{groups: make([]group, len(d.groups))}
	for i, g := range d.groups {
		out.groups[i] = group{name: intern(g.name), versions: make([]version, len(g.versions))}
		for j, v := range g.versions {
			copied := version{name: intern(v.name), stale: v.stale, resources: make([]resource, len(v.resources))}
			for k, r := range v.resources {
				copied.resources[k] = resource{
					name: intern(r.name), singular: intern(r.singular), kind: intern(r.kind), namespaced: r.namespaced,
				}
			}
			out.groups[i].versions[j] = copied
		}
	}
	return out
}

func (d *document) eachString(yield func(string)) {
	for _, g := range d.groups {
		yield(g.name)
		for _, v := range g.versions {
			yield(v.name)
			for _, r := range v.resources {
				yield(r.name)
				yield(r.singular)
				yield(r.kind)
			}
		}
	}
}

// compactor collects distinct strings in one text. A singular is found inside its plural for free.
type compactor struct {
	text strings.Builder
	at   map[string]int
}

func (c *compactor) measure(s string) {
	if c.at == nil {
		c.at = map[string]int{}
	}
	if _, ok := c.at[s]; ok {
		return
	}
	c.at[s] = c.text.Len()
	c.text.WriteString(s)
	for n := range len(s) { // remember the prefixes that singulars have: pod in pods, policy is not in policies
		if n > 0 && n >= len(s)-2 {
			if _, ok := c.at[s[:n]]; !ok {
				c.at[s[:n]] = c.at[s]
			}
		}
	}
}
