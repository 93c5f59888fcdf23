// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapping describes how a kind is served.
type Mapping struct {
	// Resource is the resource that requests name.
	Resource schema.GroupVersionResource
	// Kind is the kind that objects name, in the group version of Resource.
	Kind string
	// Singular is the resource's singular name.
	Singular string
	// Namespaced reports whether the objects live in namespaces.
	Namespaced bool
	// Lacks holds the verbs of readers that the resource does not have.
	Lacks Verbs
	// Presumed reports that the kind is one of Kubernetes itself, and that
	// discovery has not answered yet: the server may not serve it.
	Presumed bool
}

// Can reports whether the resource has all of the verbs.
func (m Mapping) Can(verbs Verbs) bool { return m.Lacks&verbs == 0 }

// GroupVersionKind returns the kind with its group and version.
func (m Mapping) GroupVersionKind() schema.GroupVersionKind {
	return m.Resource.GroupVersion().WithKind(m.Kind)
}

// snapshot is a mapper's knowledge at one time. It is immutable.
type snapshot struct {
	core, apis part
	kept       []kept
	at         time.Time
}

// kept is a group version that the server could not provide lately, as it was
// when the server last could.
type kept struct {
	group   string
	version version
}

// trusts reports whether the parts that would contain a group have been read
// successfully within ttl. every means all groups.
func (s *snapshot) trusts(group string, every bool, ttl time.Duration) bool {
	if s == nil {
		return false
	}
	fresh := func(p part) bool { return p.entry != nil && !p.failed && time.Since(p.at) < ttl }
	switch {
	case every:
		return fresh(s.core) && fresh(s.apis)
	case group == "":
		return fresh(s.core)
	}

	return fresh(s.apis)
}

// group returns the group with that name, in a slice of one. Each path is
// trusted only for its own groups.
func (s *snapshot) group(name string) []group {
	switch {
	case s == nil:
		return nil
	case name == "":
		return s.core.entry.only(name)
	}

	return s.apis.entry.only(name)
}

// all returns all groups in order of preference.
func (s *snapshot) all() []group {
	groups := slices.Clone(s.group(""))
	if s == nil || s.apis.entry == nil {
		return groups
	}
	for _, g := range s.apis.entry.doc.groups {
		if g.name != "" {
			groups = append(groups, g)
		}
	}
	return groups
}

// only returns the group with that name, in a slice of one that is part of the
// shared document.
func (e *entry) only(name string) []group {
	if e == nil {
		return nil
	}
	i := slices.IndexFunc(e.doc.groups, func(g group) bool { return g.name == name })
	if i < 0 {
		return nil
	}
	return e.doc.groups[i : i+1]
}

// known returns v with its known resources. unavailable reports whether it may
// have more.
func (s *snapshot) known(g group, v *version) (known *version, unavailable bool) {
	if !v.stale || len(v.resources) > 0 {
		return v, false
	}
	for i := range s.kept {
		if k := &s.kept[i]; k.group == g.name && k.version.name == v.name {
			return &k.version, true
		}
	}
	return v, true
}

// find calls match for the versions of the groups, in order of preference, and
// returns the resulting mappings. unavailable reports whether a version that is
// currently unavailable might have contributed more.
func (s *snapshot) find(groups []group, versionName string, match func(*version) *resource) (found []Mapping,
	unavailable bool) {
	for _, g := range groups {
		for i := range g.versions {
			if versionName != "" && g.versions[i].name != versionName {
				continue
			}
			v, partial := s.known(g, &g.versions[i])
			r := match(v)
			if r == nil {
				unavailable = unavailable || partial
				continue
			}
			found = append(found, Mapping{
				Resource:   schema.GroupVersionResource{Group: g.name, Version: v.name, Resource: r.name},
				Kind:       r.kind,
				Singular:   r.singular,
				Namespaced: r.namespaced,
				Lacks:      r.lacks,
			})
		}
	}

	return found, unavailable
}

// kind returns how the kind is served, by its preferred version if gvk names
// none.
func (s *snapshot) kind(gvk schema.GroupVersionKind) ([]Mapping, bool) {
	return s.find(s.group(gvk.Group), gvk.Version, func(v *version) *resource { return v.kind(gvk.Kind) })
}

// resource returns the mappings of the resource.
func (s *snapshot) resource(gvr schema.GroupVersionResource) ([]Mapping, bool) {
	return s.find(s.group(gvr.Group), gvr.Version, func(v *version) *resource { return v.resource(gvr.Resource) })
}

// keep returns what the next snapshot must keep from s: the group versions that
// next has no information about.
func (s *snapshot) keep(next *snapshot) []kept {
	if s == nil {
		return nil
	}
	var remembered []kept
	for _, g := range next.all() {
		for _, v := range g.versions {
			if !v.stale || len(v.resources) > 0 {
				continue
			}
			for _, before := range s.group(g.name) {
				old := before.version(v.name)
				if old == nil {
					continue
				}
				if known, _ := s.known(before, old); len(known.resources) > 0 {
					remembered = append(remembered, kept{g.name, *known})
				}
			}
		}
	}

	return slices.Clip(remembered)
}

// BuiltIn reports whether an API group belongs to Kubernetes itself.
func BuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
