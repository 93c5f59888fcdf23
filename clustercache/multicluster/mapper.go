// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// mapper queries the mapper of the current cluster: one that was forgotten and
// created again has another.
type mapper struct {
	cc  *clustercache.ClusterCache
	key client.ObjectKey
}

var _ meta.RESTMapper = (*mapper)(nil)

// ask is generic because seven methods with four result types find the current
// mapper in the same way.
func ask[T any](m *mapper, question func(meta.RESTMapper) (T, error)) (T, error) {
	to, err := m.cc.Cluster(m.key).RESTMapper()
	if err != nil {
		var none T
		return none, err
	}
	return question(to)
}

// KindFor implements meta.RESTMapper.
func (m *mapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return ask(m, func(to meta.RESTMapper) (schema.GroupVersionKind, error) { return to.KindFor(r) })
}

// KindsFor implements meta.RESTMapper.
func (m *mapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return ask(m, func(to meta.RESTMapper) ([]schema.GroupVersionKind, error) { return to.KindsFor(r) })
}

// ResourceFor implements meta.RESTMapper.
func (m *mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return ask(m, func(to meta.RESTMapper) (schema.GroupVersionResource, error) { return to.ResourceFor(r) })
}

// ResourcesFor implements meta.RESTMapper.
func (m *mapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return ask(m, func(to meta.RESTMapper) ([]schema.GroupVersionResource, error) { return to.ResourcesFor(r) })
}

// RESTMapping implements meta.RESTMapper.
func (m *mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return ask(m, func(to meta.RESTMapper) (*meta.RESTMapping, error) { return to.RESTMapping(gk, versions...) })
}

// RESTMappings implements meta.RESTMapper.
func (m *mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return ask(m, func(to meta.RESTMapper) ([]*meta.RESTMapping, error) { return to.RESTMappings(gk, versions...) })
}

// ResourceSingularizer implements meta.RESTMapper.
func (m *mapper) ResourceSingularizer(resource string) (string, error) {
	return ask(m, func(to meta.RESTMapper) (string, error) { return to.ResourceSingularizer(resource) })
}
