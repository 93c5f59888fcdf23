// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Names translate between clusters and their names outside the ClusterCache.
// The two functions must be the inverse of each other, be quick, and always
// give the same answer; a cluster for which they do not is never engaged, and a
// [*NameError] is logged.
//
// The zero value names clusters "namespace/name", or "name" without a
// namespace, and takes every name that is not of the form "namespace/name" for
// a cluster without a namespace: paths, such as those of kubeconfig files, and
// ARNs are names as they are. The few keys that would be mistaken for another
// are written differently, as "//name" or "/:namespace/name" with the special
// characters escaped.
type Names struct {
	// Name returns the name of a cluster; empty if it has none outside the
	// ClusterCache.
	Name func(cluster client.ObjectKey) string
	// Key returns the cluster of a name; false if the name is invalid.
	Key func(name string) (client.ObjectKey, bool)
}

// NameError indicates that a name and a cluster do not lead to each other,
// because the functions of [Names] are not the inverse of each other.
type NameError struct {
	// Cluster is the cluster, and Name its name.
	Cluster client.ObjectKey
	Name    string
	// Found is the cluster that the name leads to, and Back the name that the
	// cluster would have. One of them is set, unless the name leads to no
	// cluster.
	Found client.ObjectKey
	Back  string
}

// Error names the cluster, its name and the mismatch.
func (e *NameError) Error() string {
	switch {
	case e.Back != "":
		return fmt.Sprintf("the name %q leads to cluster %q, which Names.Name calls %q",
			e.Name, clustername.Of(e.Cluster), e.Back)
	case e.Found != client.ObjectKey{}:
		return fmt.Sprintf("cluster %q is called %q, which Names.Key takes for cluster %q",
			clustername.Of(e.Cluster), e.Name, clustername.Of(e.Found))
	}

	return fmt.Sprintf("cluster %q is called %q, which Names.Key takes for none", clustername.Of(e.Cluster), e.Name)
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

// check returns a [*NameError] unless name leads back to the cluster.
func (n Names) check(cluster client.ObjectKey, name string) error {
	if back, ok := n.Key(name); !ok || back != cluster {
		return &NameError{Cluster: cluster, Name: name, Found: back}
	}
	return nil
}

const (
	barePrefix    = "//" // before a name without a namespace that would be read differently
	escapedPrefix = "/:" // before an escaped namespace and name
)

// defaultName and defaultKey are a bijection between all keys but the zero one
// and all texts but the empty one.
func defaultName(cluster client.ObjectKey) string {
	switch {
	case cluster == client.ObjectKey{}:
		return ""
	case cluster.Namespace != "" && !plainPair(cluster.Namespace, cluster.Name):
		return escapedPrefix + url.PathEscape(cluster.Namespace) + "/" + url.PathEscape(cluster.Name)
	case cluster.Namespace != "":
		return cluster.Namespace + "/" + cluster.Name
	case isBare(cluster.Name):
		return cluster.Name
	}

	return barePrefix + cluster.Name
}

func defaultKey(name string) (client.ObjectKey, bool) {
	if rest, ok := strings.CutPrefix(name, barePrefix); ok && rest != "" && !isBare(rest) {
		return client.ObjectKey{Name: rest}, true
	}
	if namespace, rest, ok := strings.Cut(name, "/"); ok && plainPair(namespace, rest) {
		return client.ObjectKey{Namespace: namespace, Name: rest}, true
	}
	if key, ok := unescaped(name); ok {
		return key, true
	}
	return client.ObjectKey{Name: name}, name != ""
}

// isBare reports whether a text is read as a name without a namespace.
func isBare(text string) bool {
	key, _ := defaultKey(text)
	return key == client.ObjectKey{Name: text}
}

// unescaped reads exactly the output of defaultName's escaping: a text in any
// other spelling is a name of its own.
func unescaped(text string) (client.ObjectKey, bool) {
	rest, ok := strings.CutPrefix(text, escapedPrefix)
	namespace, name, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return client.ObjectKey{}, false
	}
	namespace, badNamespace := url.PathUnescape(namespace)
	name, badName := url.PathUnescape(name)
	key := client.ObjectKey{Namespace: namespace, Name: name}

	return key, badNamespace == nil && badName == nil && namespace != "" && defaultName(key) == text
}

// plainPair reports whether namespace/name is read as such. An ARN has a slash,
// too, but no namespace before it.
func plainPair(namespace, name string) bool {
	return namespace != "" && name != "" && !strings.Contains(name, "/") &&
		!strings.ContainsFunc(namespace, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
				!strings.ContainsRune("-._", r)
		})
}
