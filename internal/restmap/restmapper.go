// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// restMapper adapts a Mapper to the clients of controller-runtime and
// client-go. The interface has no context, so looking up an unknown kind takes
// up to Options.Timeout.
type restMapper struct{ m *Mapper }

var _ meta.RESTMapper = restMapper{}

// RESTMapper returns the mapper as a meta.RESTMapper. For known kinds it does
// no I/O.
func (m *Mapper) RESTMapper() meta.RESTMapper { return restMapper{m} }

// KindFor implements meta.RESTMapper.
func (r restMapper) KindFor(partial schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	found, err := r.resources(partial)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return found[0].GroupVersionKind(), nil
}

// KindsFor implements meta.RESTMapper.
func (r restMapper) KindsFor(partial schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	found, err := r.resources(partial)
	kinds := make([]schema.GroupVersionKind, 0, len(found))
	for _, mapping := range found {
		kinds = append(kinds, mapping.GroupVersionKind())
	}
	return kinds, err
}

// ResourceFor implements meta.RESTMapper.
func (r restMapper) ResourceFor(partial schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	found, err := r.resources(partial)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return found[0].Resource, nil
}

// ResourcesFor implements meta.RESTMapper.
func (r restMapper) ResourcesFor(partial schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	found, err := r.resources(partial)
	resources := make([]schema.GroupVersionResource, 0, len(found))
	for _, mapping := range found {
		resources = append(resources, mapping.Resource)
	}
	return resources, err
}

// RESTMapping implements meta.RESTMapper.
func (r restMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mappings, err := r.RESTMappings(gk, versions...)
	if err != nil {
		return nil, err
	}
	return mappings[0], nil
}

// RESTMappings implements meta.RESTMapper. It returns the given versions in
// their order, or all versions by preference.
func (r restMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	asked := versions
	if len(asked) == 0 {
		asked = []string{""}
	}
	found, err := r.m.resolve(context.Background(), question{group: gk.Group, none: noKind(gk,
		versions...), look: func(s *snapshot) (found []Mapping, unavailable bool) {
		for _, version := range asked {
			more, partial := s.kind(gk.WithVersion(version))
			found = append(found, more...)
			unavailable = unavailable || partial
		}
		return found, unavailable
	}})
	mappings := make([]*meta.RESTMapping, 0, len(found))
	for _, mapping := range found {
		mappings = append(mappings, mapping.rest())
	}

	return mappings, err
}

func (m Mapping) rest() *meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if m.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &meta.RESTMapping{Resource: m.Resource, GroupVersionKind: m.GroupVersionKind(), Scope: scope}
}

// cachedMapper is a restMapper that maps kinds without I/O.
type cachedMapper struct {
	restMapper

	given map[schema.GroupVersionKind]Mapping
}

// CachedRESTMapper returns a meta.RESTMapper whose RESTMapping does no I/O: it
// returns a *NotCachedError for a kind that is neither known yet nor given. The
// client of controller-runtime calls it while it holds a lock that all calls
// need, and without their contexts.
func (m *Mapper) CachedRESTMapper(given map[schema.GroupVersionKind]Mapping) meta.RESTMapper {
	return cachedMapper{restMapper{m}, given}
}

// RESTMapping implements meta.RESTMapper.
func (c cachedMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	gvk := gk.WithVersion(cmp.Or(versions...))
	mapping, ok := c.m.Cached(gvk)
	if !ok {
		mapping, ok = c.given[gvk]
	}
	if !ok {
		return nil, &NotCachedError{GVK: gvk}
	}
	return mapping.rest(), nil
}

// NotCachedError indicates that Mapper.ResourceFor has to be called first.
type NotCachedError struct{ GVK schema.GroupVersionKind }

// Error implements error.
func (e *NotCachedError) Error() string { return "not discovered yet: " + e.GVK.String() }

// ResourceSingularizer implements meta.RESTMapper. The singular of an unknown
// resource is the resource itself.
func (r restMapper) ResourceSingularizer(name string) (string, error) {
	found, err := r.resources(schema.GroupVersionResource{Resource: name})
	if err != nil {
		return name, err
	}
	return found[0].Singular, nil
}

// resources finds the resources that a user may mean: plural or singular,
// without version or group, or with the beginning of a group.
func (r restMapper) resources(partial schema.GroupVersionResource) ([]Mapping, error) {
	name := strings.ToLower(partial.Resource)
	return r.m.resolve(context.Background(), question{every: true, none: noResource(partial), look: func(s *snapshot) (
		[]Mapping, bool) {
		groups := s.all()
		if partial.Group != "" {
			if groups = s.group(partial.Group); len(groups) == 0 {
				groups = slices.DeleteFunc(s.all(), func(g group) bool {
					return !strings.HasPrefix(g.name, partial.Group)
				})
			}
		}
		return s.find(groups, partial.Version, func(v *version) *resource { return v.named(name) })
	}})
}

// named returns the resource with that plural name or, failing that, that
// singular name, or nil.
func (v *version) named(name string) *resource {
	return cmp.Or(v.resource(name), first(v.resources, func(r resource) bool { return r.singular == name }))
}
