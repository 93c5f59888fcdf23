// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package objects generates the objects of the measurements: the same seed and
// number always yield the same object, and no object repeats another.
package objects

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Teams is the number of namespaces among which the apps are distributed.
	Teams = 17
	// DefaultReplicas is the number of Pods per app, unless a Generator has
	// another.
	DefaultReplicas = 5
	// secretBytes is the size of the random data of a Secret.
	secretBytes = 3 << 10
)

// Generator makes objects. The zero value is valid.
type Generator struct {
	// Seed makes the objects differ from those of other seeds, as the objects
	// of two clusters do.
	Seed uint64
	// Replicas is how many Pods share the labels and the owner of their app. 1
	// gives each Pod its own. Defaults to DefaultReplicas.
	Replicas int
}

// class keeps the random numbers of different things apart.
type class uint64

const (
	sharedByApp class = iota + 1
	ownOfPod
	ownOfDeployment
	ownOfReplicaSet
	ownOfConfigMap
	ownOfSecret
	ownOfTLSSecret
	ownOfWidget
	ownOfStored
	ownOfCluster
	classes = 64
)

func (g Generator) replicas() int {
	if g.Replicas > 0 {
		return g.Replicas
	}
	return DefaultReplicas
}

func (g Generator) random(c class, i int) *rand.Rand {
	return rand.New(rand.NewPCG(g.Seed*uint64(classes)+uint64(c), uint64(i)))
}

// Kind is a kind of objects that a Generator makes.
type Kind struct {
	// Name is the name of the kind in the tables. The Pods of two kinds differ
	// only in what they share.
	Name     string
	GVK      schema.GroupVersionKind
	Resource string
	// New returns object number i.
	New func(g Generator, i int) client.Object
}

// GVR returns the resource.
func (k Kind) GVR() schema.GroupVersionResource { return k.GVK.GroupVersion().WithResource(k.Resource) }

// Kinds.
var (
	Pods        = newKind("pods", "", "v1", "Pod", Generator.Pod)
	Deployments = newKind("deployments", "apps", "v1", "Deployment", Generator.Deployment)
	ReplicaSets = newKind("replicasets", "apps", "v1", "ReplicaSet", Generator.ReplicaSet)
	ConfigMaps  = newKind("configmaps", "", "v1", "ConfigMap", Generator.ConfigMap)
	Secrets     = newKind("secrets", "", "v1", "Secret", Generator.Secret)
	TLSSecrets  = newKind("secrets", "", "v1", "Secret", Generator.TLSSecret)
	Widgets     = newKind("widgets", WidgetGroup, "v1", "Widget", Generator.Widget)
)

// Mix are the kinds of a cluster of the fleet.
var Mix = []Kind{Pods, Deployments, ReplicaSets, ConfigMaps, Secrets}

func newKind[T client.Object](resource, group, version, kind string, make func(Generator, int) T) Kind {
	gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	return Kind{
		Name:     resource,
		GVK:      gvk,
		Resource: resource,
		New: func(g Generator, i int) client.Object {
			o := make(g, i)
			o.GetObjectKind().SetGroupVersionKind(gvk)
			return o
		},
	}
}

// customShapes are the kinds whose objects those of the custom kinds look like,
// in turn.
var customShapes = []Kind{Widgets, Deployments, ConfigMaps, Pods}

// customSeeds keeps the objects of the custom kinds of one shape apart.
const customSeeds = 1 << 32

// Custom returns custom kind number n. Its objects have the shape of those of
// another kind, but none is like another.
func Custom(n int) Kind {
	shape := customShapes[n%len(customShapes)]
	return newKind(fmt.Sprintf("customs%d", n), WidgetGroup, "v1", fmt.Sprintf("Custom%d", n),
		func(g Generator, i int) client.Object {
			g.Seed += uint64(n+1) * customSeeds
			return shape.New(g, i)
		})
}

// TeamPrefix begins the names of the namespaces.
const TeamPrefix = "team-"

// NamespaceOf returns the namespace of an app.
func NamespaceOf(app int) string { return fmt.Sprint(TeamPrefix, app%Teams) }

// IsName reports whether an object can have the name.
func IsName(name string) bool {
	return slices.ContainsFunc(apps, func(app string) bool { return strings.HasPrefix(name, app+"-") })
}

func appName(app int) string { return fmt.Sprintf("%s-%d", apps[app%len(apps)], app) }

// appLabels are the labels by which an app's objects select one another.
func appLabels(name string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":     name,
		"app.kubernetes.io/instance": name,
		"app.kubernetes.io/part-of":  "shop",
	}
}

// podTemplate returns what an app's Pods are made from: a Pod without what the
// scheduler, admission and the kubelet add.
func (g Generator) podTemplate(app int) corev1.PodTemplateSpec {
	p := g.Pod(app * g.replicas())
	t := corev1.PodTemplateSpec{Spec: p.Spec}
	t.Labels, t.Annotations = appLabels(appName(app)), p.Annotations
	t.Spec.NodeName, t.Spec.Tolerations = "", nil
	t.Spec.EnableServiceLinks, t.Spec.Priority, t.Spec.PreemptionPolicy = nil, nil, nil
	t.Spec.Volumes = t.Spec.Volumes[:1] // without the token
	for i := range t.Spec.Containers {
		mounts := &t.Spec.Containers[i].VolumeMounts
		*mounts = (*mounts)[:len(*mounts)-1]
	}

	return t
}

// NewWidgetDefinition returns the CustomResourceDefinition of the kind Widget.
func NewWidgetDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "widgets." + WidgetGroup},
		"spec": map[string]any{
			"group": WidgetGroup,
			"scope": "Namespaced",
			"names": map[string]any{
				"kind":     "Widget",
				"listKind": "WidgetList",
				"plural":   "widgets",
				"singular": "widget",
			},
			"versions": []any{map[string]any{
				"name":    "v1",
				"served":  true,
				"storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type":                                 "object",
					"x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

// Stored returns object number i of the kind with the metadata that an API
// server gives it, except its resourceVersion. revision counts its changes.
func (g Generator) Stored(k Kind, i, revision int) client.Object {
	o := k.New(g, i)
	kind := fnv.New32a()
	_, _ = kind.Write([]byte(k.Resource))
	own := g.random(ownOfStored, int(kind.Sum32())<<16+i)
	o.SetUID(types.UID(uid(own)))
	o.SetCreationTimestamp(moment(own))
	if k.GVK.Group == "apps" || k.GVK.Kind == "Pod" {
		o.SetGeneration(1)
	}
	if revision > 0 {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[RevisionAnnotation] = fmt.Sprintf("%d-%s", revision, word(own, 6))
		o.SetAnnotations(annotations)
	}

	return o
}

// RevisionAnnotation is what changes in an object.
const RevisionAnnotation = WidgetGroup + "/revision"

// ClusterUID returns the UID of the cluster that has the objects.
func (g Generator) ClusterUID() string { return uid(g.random(ownOfCluster, 0)) }
