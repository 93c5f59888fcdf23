// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package api has the kinds of the rollout example, which are defined in the
// hub: a Module is what to apply, a Rollout where and in which order.
package api

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds.
var GroupVersion = schema.GroupVersion{Group: "rollout.example.com", Version: "v1"}

// CRDs are the definitions of the kinds, as YAML documents.
//
//go:embed crds.yaml
var CRDs []byte

// Labels and annotation of the objects that a Rollout applies in remote
// clusters.
const (
	// ManagedLabel, with the value ManagedValue, selects the objects of all
	// Rollouts: one watch of a kind in a cluster serves all of them.
	ManagedLabel = "rollout.example.com/managed"
	ManagedValue = "true"
	// NamespaceLabel and NameLabel name the Rollout.
	NamespaceLabel = "rollout.example.com/namespace"
	NameLabel      = "rollout.example.com/name"
	// VersionAnnotation is the version of the Module.
	VersionAnnotation = "rollout.example.com/version"
)

// Module is a set of objects to apply together.
type Module struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec ModuleSpec `json:"spec"`
}

// ModuleSpec is the content of a Module.
type ModuleSpec struct {
	// Version names this content. It changes with it.
	Version string `json:"version"`
	// Manifests are the objects, in the order in which they are applied. Those
	// of a kind with namespaces name theirs, which must exist.
	Manifests []runtime.RawExtension `json:"manifests"`
}

// Rollout rolls a Module of its namespace out to clusters, in waves.
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   RolloutSpec   `json:"spec"`
	Status RolloutStatus `json:"status,omitzero"`
}

// RolloutSpec says what goes where.
type RolloutSpec struct {
	// Module is the name of the Module.
	Module string `json:"module"`
	// Waves are served in this order.
	Waves []Wave `json:"waves"`
}

// Wave is a set of clusters that are served at the same time. The next wave
// begins when all of them are Ready, apart from MaxUnavailable.
type Wave struct {
	Name string `json:"name"`
	// Clusters are names of clusters. Their Secrets are in the namespace of the
	// Rollout, and do not have to exist yet.
	Clusters []string `json:"clusters"`
	// MaxUnavailable is how many of the clusters may be unavailable without
	// delaying the next wave. They are served when they are there. A cluster
	// that failed delays the next wave in any case.
	MaxUnavailable int `json:"maxUnavailable,omitempty"`
}

// Phase is the state of a Rollout.
type Phase string

// Phases of a Rollout.
const (
	// Progressing: clusters are being served, or waited for.
	Progressing Phase = "Progressing"
	// Failed: a cluster failed, so that no further wave begins. A change of the
	// Module, or of the cluster, lets the Rollout go on.
	Failed Phase = "Failed"
	// Complete: all clusters are Ready.
	Complete Phase = "Complete"
)

// RolloutStatus is the state of a Rollout.
type RolloutStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Version is that of the Module that is being rolled out.
	Version string `json:"version,omitempty"`
	Phase   Phase  `json:"phase,omitempty"`
	// Message says what the Rollout waits for.
	Message  string          `json:"message,omitempty"`
	Clusters []ClusterStatus `json:"clusters,omitempty"`
}

// State is the state of one cluster of a Rollout.
type State string

// States of a cluster.
const (
	// ClusterWaiting: its wave has not begun.
	ClusterWaiting State = "Waiting"
	// ClusterUnavailable: it has no Secret yet, or cannot be reached.
	ClusterUnavailable State = "Unavailable"
	// ClusterProgressing: it has the version, which is not ready yet.
	ClusterProgressing State = "Progressing"
	// ClusterReady: it has the version, and all objects are ready.
	ClusterReady State = "Ready"
	// ClusterFailed: the version could not be applied, or an object reports
	// that it failed.
	ClusterFailed State = "Failed"
)

// ClusterStatus is the state of one cluster of a Rollout.
type ClusterStatus struct {
	Name string `json:"name"`
	Wave string `json:"wave"`
	// Version is that of the objects in the cluster, as far as it is known. If
	// they differ, it is empty.
	Version string `json:"version,omitempty"`
	State   State  `json:"state"`
	// Message is why the cluster is not Ready.
	Message string `json:"message,omitempty"`
}

// ModuleList is a list of Modules.
type ModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Module `json:"items"`
}

// RolloutList is a list of Rollouts.
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Rollout `json:"items"`
}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Module{}, &ModuleList{}, &Rollout{}, &RolloutList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
