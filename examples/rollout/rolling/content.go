// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// managed selects the objects of all Rollouts. Declared watches and reads use
// the same selector, so that the cache answers the reads.
var managed = client.MatchingLabels{api.ManagedLabel: api.ManagedValue}

// content is what a Rollout wants a cluster to have. It is read-only.
type content struct {
	version string
	objects []*unstructured.Unstructured
	kinds   []schema.GroupVersionKind // of the objects, each once
}

// contentOf returns the objects of a Module, marked as those of the Rollout. Its
// error is that of a manifest that is none, or that occurs twice.
func contentOf(module *api.Module, rollout *api.Rollout) (*content, error) {
	c := &content{version: module.Spec.Version}
	ids := map[id]bool{}
	for i, manifest := range module.Spec.Manifests {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(manifest.Raw); err != nil {
			return nil, fmt.Errorf("manifest %d: %w", i, err)
		}
		switch {
		case u.GetName() == "":
			return nil, fmt.Errorf("manifest %d: it has no name", i)
		case ids[idOf(u)]:
			return nil, fmt.Errorf("manifest %d: %s %s occurs twice", i, u.GetKind(), u.GetName())
		}
		ids[idOf(u)] = true
		mark(u, map[string]string{
			api.ManagedLabel:   api.ManagedValue,
			api.NamespaceLabel: rollout.Namespace,
			api.NameLabel:      rollout.Name,
		}, c.version)
		c.objects = append(c.objects, u)
		if !slices.Contains(c.kinds, u.GroupVersionKind()) {
			c.kinds = append(c.kinds, u.GroupVersionKind())
		}
	}
	if len(c.objects) == 0 {
		return nil, errors.New("the Module is empty")
	}
	return c, nil
}

// mark adds labels, and the annotation of the version.
func mark(u *unstructured.Unstructured, labels map[string]string, version string) {
	all := u.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	u.SetLabels(all)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[api.VersionAnnotation] = version
	u.SetAnnotations(annotations)
}

// id identifies an object in a cluster.
type id struct {
	kind schema.GroupVersionKind
	client.ObjectKey
}

func idOf(u *unstructured.Unstructured) id {
	return id{kind: u.GroupVersionKind(), ObjectKey: client.ObjectKeyFromObject(u)}
}

// has reports whether the actual value has everything that is wanted. Maps may
// have more keys: other fields belong to others, or are defaults. A value that
// the server writes in another form, such as a quantity, differs, which costs
// one more apply, and no event, whenever something else changes.
func has(actual, wanted any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		a, ok := actual.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range w {
			if !has(a[key], value) {
				return false
			}
		}
		return true
	case []any:
		a, ok := actual.([]any)
		return ok && slices.EqualFunc(a, w, has)
	}
	return equality.Semantic.DeepEqual(actual, wanted)
}
