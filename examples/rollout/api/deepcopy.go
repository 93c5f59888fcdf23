// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy returns a copy of the Module.
func (m *Module) DeepCopy() *Module {
	c := *m
	m.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Manifests = make([]runtime.RawExtension, len(m.Spec.Manifests))
	for i := range m.Spec.Manifests {
		m.Spec.Manifests[i].DeepCopyInto(&c.Spec.Manifests[i])
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (m *Module) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *ModuleList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]Module, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}

// DeepCopy returns a copy of the Rollout.
func (r *Rollout) DeepCopy() *Rollout {
	c := *r
	r.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Waves = slices.Clone(r.Spec.Waves)
	for i := range c.Spec.Waves {
		c.Spec.Waves[i].Clusters = slices.Clone(r.Spec.Waves[i].Clusters)
	}
	c.Status.Clusters = slices.Clone(r.Status.Clusters)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (r *Rollout) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *RolloutList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]Rollout, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}
