// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// legacyVersions reads the list of group versions. The preferred version of
// each group comes first.
func legacyVersions(path string, body []byte) ([]schema.GroupVersion, error) {
	if path == corePath {
		return legacyCore(body)
	}
	var list metav1.APIGroupList
	if err := decode(body, &list); err != nil {
		return nil, err
	} else if list.Kind != "APIGroupList" {
		return nil, ErrMalformed
	}
	var versions []schema.GroupVersion
	for _, g := range list.Groups {
		slices.SortStableFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			switch preferred := g.PreferredVersion.Version; {
			case a.Version == b.Version:
				return 0
			case a.Version == preferred:
				return -1
			case b.Version == preferred:
				return 1
			}

			return 0
		})
		for _, v := range g.Versions {
			if g.Name != "" && validGroup(g.Name) && validLabel(v.Version) {
				versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
		}
	}

	return limited(versions)
}

func legacyCore(body []byte) ([]schema.GroupVersion, error) {
	var list metav1.APIVersions
	if err := decode(body, &list); err != nil {
		return nil, err
	} else if list.Kind != "APIVersions" {
		return nil, ErrMalformed
	}
	var versions []schema.GroupVersion
	for _, v := range list.Versions {
		if validLabel(v) {
			versions = append(versions, schema.GroupVersion{Version: v})
		}
	}
	return limited(versions)
}

// limited refuses more group versions than any real server has, because each
// costs a request.
func limited(versions []schema.GroupVersion) ([]schema.GroupVersion, error) {
	if len(versions) > maxVersions {
		return nil, fmt.Errorf("%w: more than %d versions", ErrTooLarge, maxVersions)
	}
	return versions, nil
}

// legacyDocument combines the lists of all group versions. A nil list makes its
// version stale.
func legacyDocument(versions []schema.GroupVersion, lists []*metav1.APIResourceList) (*document, error) {
	var b builder
	for i, gv := range versions {
		into, err := b.version(gv.Group, gv.Version, lists[i] == nil)
		if err != nil {
			return nil, err
		}
		if lists[i] == nil {
			continue
		}

		for _, r := range lists[i].APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			err := b.add(into, resource{
				name:       r.Name,
				singular:   r.SingularName,
				kind:       r.Kind,
				namespaced: r.Namespaced,
				lacks:      lacking(r.Verbs),
			})
			if err != nil {
				return nil, err
			}
		}
	}

	return &document{groups: b.groups}, nil
}
