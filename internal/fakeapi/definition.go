// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// defines reports whether the kind is CustomResourceDefinition.
func (k *Kind) defines() bool {
	return k.Group == "apiextensions.k8s.io" && k.Resource == "customresourcedefinitions"
}

// defined gives a kind that is registered the definition by which it seems to
// be served, unless it is Aggregated. It has one as long as it is registered,
// unless a client creates another.
func (c *catalog) defined(k *Kind) *Kind {
	if t := c.tables[k.GroupResource().String()]; t != nil {
		k.definition = t.kind.definition
		return k
	}
	if !k.Aggregated {
		c.definitions++
		text := fmt.Appendf(nil, "%s/definition/%d", c.identity, c.definitions)
		k.definition = types.UID(uuid.NewSHA1(uuid.NameSpaceOID, text).String())
	}
	return k
}

// definition returns the definition of a name by which a registered kind seems
// to be served, or nil. It is not stored: it is found by its name alone, so
// that a client may create it.
func (x *exchange) definition(name string) *version {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.tables {
		k := t.kind
		if k.definition == "" || k.Resource+"."+k.Group != name {
			continue
		}
		scope := "Namespaced"
		if k.ClusterScoped {
			scope = "Cluster"
		}
		versions := make([]any, 0, len(k.Versions))
		for i, v := range k.Versions {
			versions = append(versions, map[string]any{"name": v, "served": true, "storage": i == 0})
		}
		return newVersion(firstVersion, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": name, "uid": string(k.definition)},
			"spec": map[string]any{
				"group":    k.Group,
				"scope":    scope,
				"names":    map[string]any{"plural": k.Resource, "singular": k.Singular, "kind": k.Kind},
				"versions": versions,
			},
		})
	}

	return nil
}
