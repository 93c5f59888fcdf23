// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"slices"

	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// target is a cluster that is to be read.
type target struct {
	at     int // among the targets
	key    client.ObjectKey
	labels map[string]string
	err    error // why it cannot be read
}

// targets returns the clusters to read, sorted by namespace and name.
func (r *read) targets() []target {
	here := r.cc.Clusters()
	keys := slices.Clone(r.options.Clusters)
	everywhere := keys == nil
	if everywhere {
		keys = slices.Concat(here, r.cc.Listed())
	}
	slices.SortFunc(keys, clustername.Compare)

	var targets []target
	for _, key := range slices.Compact(keys) {
		if r.options.Owned && !r.cc.Cluster(key).Owned() {
			continue
		}
		t := target{at: len(targets), key: key}
		if _, known := slices.BinarySearchFunc(here, key, clustername.Compare); everywhere && !known {
			t.err = r.fail(key, clustercache.ErrUnknownCluster)
		} else if !r.selects(&t) {
			continue
		}
		targets = append(targets, t)
	}

	return targets
}

// selects reports whether the selector selects a cluster, or may do so, and
// fills in its labels.
func (r *read) selects(t *target) bool {
	labels, known := r.cc.Cluster(t.key).Labels()
	selector := r.options.ClusterSelector
	t.labels = labels
	switch {
	case selector == nil:
	case known:
		return selector.Matches(k8slabels.Set(labels))
	default:
		t.err = r.fail(t.key, ErrLabelsUnknown)
		if why := r.cc.Cluster(t.key).Serving(); why != nil {
			t.err = r.fail(t.key, fmt.Errorf("%w: %w", ErrLabelsUnknown, cause(why)))
		}
	}

	return true
}

// fail names the cluster and the kind in an error.
func (r *read) fail(cluster client.ObjectKey, err error) error {
	err = cause(err)
	if errors.Is(err, clustercache.ErrUnknownCluster) && !r.cc.Cluster(cluster).Owned() {
		err = fmt.Errorf("%w: %w", err, clustercache.ErrNotOwner)
	}
	return &clustercache.ClusterError{
		Cluster: cluster,
		GVK:     r.gvk,
		Op:      "list",
		Err:     err,
	}
}

// cause returns what an error says about a cluster that its caller names.
func cause(err error) error {
	if of, ok := err.(*clustercache.ClusterError); ok { //nolint:errorlint // one that is wrapped has a context
		return of.Err
	}
	return err
}
