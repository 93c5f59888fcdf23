// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names say how clusters are called outside of the ClusterCache. The two functions must undo each other, be quick, and
// always give the same answer. The zero value calls them "namespace/name", or "name" without a namespace.
type Names struct {
	// Name returns the name of a cluster; empty if it is not to be seen outside.
	Name func(cluster client.ObjectKey) string
	// Key returns the cluster of a name; false if there can be none.
	Key func(name string) (client.ObjectKey, bool)
}

func (n Names) withDefaults() Names {
	if n.Name == nil {
		n.Name = defaultName
	}
	if n.Key == nil {
		n.Key = defaultKey
	}
	return n
}

func defaultName(cluster client.ObjectKey) string {
	if cluster.Namespace == "" {
		return cluster.Name
	}
	return cluster.Namespace + "/" + cluster.Name
}

func defaultKey(name string) (client.ObjectKey, bool) {
	namespace, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return client.ObjectKey{Name: name}, name != ""
	case namespace == "" || rest == "" || strings.Contains(rest, "/"):
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: namespace, Name: rest}, true
}
