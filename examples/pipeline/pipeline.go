// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pipelineKind is the kind of Pipelines.
var pipelineKind = schema.GroupVersionKind{Group: "pipelines.example", Version: "v1", Kind: "Pipeline"}

// Pipeline promotes a version through environments. Its targets are deleted
// with it.
type Pipeline struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   PipelineSpec   `json:"spec"`
	Status PipelineStatus `json:"status"`
}

// PipelineSpec is what a Pipeline is to do.
type PipelineSpec struct {
	// Version is promoted through the environments, in their order.
	Version      string        `json:"version"`
	Environments []Environment `json:"environments"`
}

// Environment is a step of a Pipeline.
type Environment struct {
	Name    string   `json:"name"`
	Targets []Target `json:"targets"`
}

// Target is an object with a spec.version, whose controller reports the version
// that runs as status.version.
type Target struct {
	// Cluster is the name of a cluster in the namespace of the Pipeline; empty:
	// the hub.
	Cluster    string `json:"cluster,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

// PipelineStatus is how far a Pipeline has come.
type PipelineStatus struct {
	Environments []EnvironmentStatus `json:"environments,omitempty"`
}

// EnvironmentStatus is the state of an environment.
type EnvironmentStatus struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Reason is why the environment is not ready, in one word: Waiting for the
	// environment before, Promoting, NotReady, Deleting, or the reason of an
	// error, such as NoAccess, Unreachable, NotServed or Forbidden.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// PipelineList is a list of Pipelines.
type PipelineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Pipeline `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (p *Pipeline) DeepCopyObject() runtime.Object {
	out := *p
	p.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Environments = slices.Clone(p.Spec.Environments)
	for i, e := range out.Spec.Environments {
		out.Spec.Environments[i].Targets = slices.Clone(e.Targets)
	}
	out.Status.Environments = slices.Clone(p.Status.Environments)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *PipelineList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Pipeline))
	}
	return &out
}

// addToScheme registers the kind.
func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(pipelineKind.GroupVersion(), &Pipeline{}, &PipelineList{})
	metav1.AddToGroupVersion(scheme, pipelineKind.GroupVersion())
}
