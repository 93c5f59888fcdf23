// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// Target is a kind, or a selection of it, that an owner needs in a cluster, or
// in all clusters with certain labels.
type Target struct {
	// Cluster is the cluster. The zero value is the hub, unless there is a
	// ClusterSelector.
	Cluster client.ObjectKey
	// ClusterSelector selects clusters by their labels
	// ([resolver.Access.Labels]) instead of naming one: a watch in each that is
	// known, now and later, while its labels match. It makes no cluster known.
	// With Options.Sharding it selects only clusters that this replica owns or
	// stands by for.
	ClusterSelector labels.Selector
	// Kind gives the kind, as a typed object, an unstructured one, or [Kind].
	// Required.
	Kind client.Object
	// Options narrow the kind, as those of [Cluster.Watch] do.
	Options []client.ListOption
}

// TargetError reports a target of an owner that is not in effect, or did not
// sync.
type TargetError struct {
	Owner   Owner
	Cluster client.ObjectKey
	// ClusterSelector is that of the target, if the error concerns no cluster.
	ClusterSelector labels.Selector
	// GVK is zero if the target's kind cannot be determined.
	GVK schema.GroupVersionKind
	// Field is the invalid field of the target, such as
	// Targets[2].LabelSelector, if the cause is the target.
	Field string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *TargetError) Error() string {
	kind, field := "unknown kind", ""
	if !e.GVK.Empty() {
		kind = kindName(e.GVK)
	}
	if e.Field != "" {
		field = e.Field + ": "
	}
	where := "cluster " + clusterName(e.Cluster)
	if e.ClusterSelector != nil {
		where = selectedClusters(e.ClusterSelector.String())
	}
	return fmt.Sprintf("%s in %s for %s: %s%v", kind, where, e.Owner, field, e.Err)
}

// Unwrap returns the cause.
func (e *TargetError) Unwrap() error { return e.Err }

// need is what an owner uses: a watch in one cluster or, with a selector, one in
// each cluster that it selects. Owners share it by its value, so what the
// labels of clusters change concerns no owner's declaration, and cannot get in
// its way.
type need struct {
	status.WatchKey // without a cluster if there is a selector

	many     bool   // there is a selector
	clusters string // the selector, in canonical form
}

// String returns a short readable form, for logs and errors.
func (n need) String() string {
	if !n.many {
		return n.WatchKey.String()
	}
	return kindName(n.GVK) + " in " + selectedClusters(n.clusters)
}

// MarshalLog returns the value for a logger.
func (n need) MarshalLog() any {
	if n.many {
		return n.String()
	}
	return n.WatchKey
}

// need returns what the i-th target of an owner needs. The error is a
// *TargetError.
func (t Target) need(scheme *runtime.Scheme, owner Owner, i int) (need, error) {
	id, err := newSelection(scheme, t.Kind, t.Options)
	if err == nil && t.ClusterSelector == nil {
		return need{WatchKey: keyOf(t.Cluster, id)}, nil
	}

	field := "Kind"
	if err == nil {
		field = "ClusterSelector"
		n := need{WatchKey: keyOf(client.ObjectKey{}, id), many: true}
		if n.clusters, err = t.clusterSelector(); err == nil {
			return n, nil
		}
	}
	if o, ok := errors.AsType[*OptionError](err); ok {
		field, err = o.Field, o.Err
	}

	return need{}, &TargetError{
		Owner:           owner,
		Cluster:         t.Cluster,
		ClusterSelector: t.ClusterSelector,
		GVK:             id.GVK,
		Field:           fmt.Sprintf("Targets[%d].%s", i, field),
		Err:             err,
	}
}

// clusterSelector returns the canonical form of the selector.
func (t Target) clusterSelector() (string, error) {
	if t.Cluster != (client.ObjectKey{}) {
		return "", errTwoSelectors
	}
	if listopts.LabelsOfNothing(t.ClusterSelector) {
		return "", errSelectsNone // the empty text would select everything
	}
	canonical, err := labels.Parse(t.ClusterSelector.String())
	if err != nil {
		return "", err
	}
	return canonical.String(), nil
}

// targetError returns the error of a need of an owner.
func (n need) targetError(owner Owner, cause error) *TargetError {
	out := &TargetError{
		Owner:   owner,
		Cluster: n.Cluster,
		GVK:     n.GVK,
		Err:     cause,
	}
	if n.many {
		out.ClusterSelector, _ = labels.Parse(n.clusters) // it was made from one
	}
	return out
}

func selectedClusters(selector string) string {
	if selector == "" {
		return "all clusters"
	}
	return "clusters with " + selector
}

var (
	errUnsettled    = errors.New("not every cluster's labels are known yet")
	errTwoSelectors = errors.New("a target with a Cluster has no ClusterSelector")
	errSelectsNone  = errors.New("selects nothing")
)

// anySelector reports whether one of the needs has a selector.
func anySelector(needs []need) bool {
	return slices.ContainsFunc(needs, func(n need) bool { return n.many })
}
