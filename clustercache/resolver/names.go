// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"fmt"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxName is the longest namespace or name of a cluster, in bytes, that is
// taken from an object. It ends up in log lines and in labels of metrics.
const maxName = 1024

// checkName returns why a cluster must not have that name, or "". Names from
// the data of a Secret are arbitrary bytes: they could forge log lines and
// break the output of metrics. An empty name would be that of the hub.
func checkName(cluster Cluster) string {
	if cluster.Name == "" {
		return "is empty"
	}
	for _, part := range []string{cluster.Namespace, cluster.Name} {
		if len(part) > maxName {
			return fmt.Sprintf("has more than %d bytes", maxName)
		}
		if why := checkText(part); why != "" {
			return why
		}
	}

	return ""
}

func checkText(text string) string {
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return "has control characters"
		}
	}
	return ""
}

// name sets the clusters that an object describes. A cluster with an invalid
// name is represented by the object's own key instead, with an error: an object
// that describes a cluster must not disappear because its name is unusable.
func (f *found) name(object client.Object, clusters []Cluster, field string) {
	if field == "" {
		field = "ID"
	}
	f.clusters = nil
	for _, cluster := range clusters {
		why := checkName(cluster)
		if why == "" {
			f.clusters = append(f.clusters, cluster)
			continue
		}
		f.standIn, f.unnamed = client.ObjectKeyFromObject(object), invalid(field, why)
	}

	if f.unnamed != nil {
		f.clusters = append(f.clusters, f.standIn)
	}
}

// mayStandFor returns the error for a cluster that no known object describes,
// while it is unknown which cluster this object describes. It is not
// an [ErrNoAccess]: a cluster that is not listed either would then count as
// gone.
func (f *found) mayStandFor(cluster Cluster) error { return fail(cluster, f.ref, f.failed) }

// keep makes an object that has become unreadable describe the same clusters as
// before.
func (f *found) keep(before found) {
	f.clusters, f.standIn, f.unnamed = before.clusters, before.standIn, before.unnamed
}

// nameless returns why the object does not describe the cluster although the
// cluster has the object's key.
func (f *found) nameless(cluster Cluster) error {
	if f.unnamed == nil || cluster != f.standIn {
		return nil
	}
	return f.unnamed
}

// compareCandidates orders objects that describe a cluster: the older one holds
// it, so that a second object cannot take over a cluster, and an object that
// only has the cluster's name as its own key never does.
func compareCandidates(cluster Cluster) func(a, b found) int {
	rank := func(f found) int {
		if f.nameless(cluster) != nil {
			return 1
		}
		return 0
	}
	return func(a, b found) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), compareFound(a, b)) }
}
