// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// TypeWatchesSynced is the type of the condition that [WatchesSynced] returns.
const TypeWatchesSynced = "WatchesSynced"

// Watch is the state of a watch: what Cluster.WatchStatuses and
// Watch.Status return, or what ClusterCache.Declared and Usage do.
type Watch interface {
	status.Watch | clustercache.Use
}

// WatchesSynced returns the condition WatchesSynced of watches: what an owner
// declared (ClusterCache.Declared), all watches of a cluster
// (Cluster.WatchStatuses), or any others. The condition is
//   - True, with the reason [ReasonSynced] and no message, if every watch is
//     synced (Watch.HasSynced) and nothing has interrupted it;
//   - Unknown if there is no watch ([ReasonNoWatches]), or if nothing has
//     failed and some watches are about to list for the first time (NotSynced,
//     Connecting, NotStarted);
//   - False otherwise, with the reason of the worst watch, a word of
//     clustercache.ReasonOf. The message names the kinds and clusters of the
//     three worst with their reasons, and counts the others.
//
// Worst is what only a person can change, such as a right that is missing; then
// come watches that are not synced, and then those that are interrupted and
// answer all the same. The order of the watches has no influence. Watches of
// one kind in one cluster count once.
//
// While a cluster is not connected, each of its watches has the error that
// interrupted it, which may be an earlier one than that of the cluster, or
// NotConnected if the watch was cut with the connection: ClusterReady has the
// cause.
func WatchesSynced[W Watch](watches []W, observedGeneration int64) metav1.Condition {
	c := metav1.Condition{
		Type:               TypeWatchesSynced,
		Status:             metav1.ConditionUnknown,
		ObservedGeneration: observedGeneration,
	}
	faults := faultsOf(watches)
	switch {
	case len(watches) == 0:
		c.Reason = ReasonNoWatches
		c.Message = explain(c.Reason)
	case len(faults) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonSynced
	case faults[0].severity == waiting:
		c.Reason = faults[0].reason
		c.Message = explain(c.Reason) // whose turn it is changes too often to be named
	default:
		faults = slices.DeleteFunc(faults, func(f watchFault) bool { return f.severity == waiting })
		c.Status, c.Reason = metav1.ConditionFalse, faults[0].reason
		c.Message = listed(faults)
	}

	return c
}

// severity orders the faults of watches, the worst first.
type severity int

const (
	refused     severity = iota // until a person changes something
	missing                     // not synced
	interrupted                 // still synced
	waiting                     // nothing has failed
)

// lasting are the reasons that only a person can change.
var lasting = []string{
	"BadAccess", "BadConfig", "BadRequest", "ClusterNotFound", "Forbidden", "Invalid", "MethodNotAllowed",
	"NotAcceptable", "NotFound", "NotKubernetes", "NotServed", "NotWatchable", "OverBudget", "Refused", "TLS",
	"TLSBadName", "TLSExpired", "TLSUnknownAuthority", "Unauthorized", "UnsupportedMediaType", "Unsupported",
}

// watchFault is what keeps a watch from being current.
type watchFault struct {
	severity severity
	reason   string
	cluster  client.ObjectKey
	gvk      schema.GroupVersionKind
}

func (f watchFault) compare(g watchFault) int {
	return cmp.Or(cmp.Compare(f.severity, g.severity), cmp.Compare(f.reason, g.reason), f.compareWatch(g))
}

func (f watchFault) compareWatch(g watchFault) int {
	return cmp.Or(clustername.Compare(f.cluster, g.cluster), wants.CompareKinds(f.gvk, g.gvk))
}

// String names the kind, the cluster and the reason.
func (f watchFault) String() string {
	name := wants.KindName(f.gvk) + " in cluster " + clustername.Of(f.cluster)
	return clip(name, maxPart) + " (" + f.reason + ")"
}

// faultsOf returns the worst fault of each kind in each cluster, the worst
// first.
func faultsOf[W Watch](watches []W) []watchFault {
	var faults []watchFault
	for _, w := range watches {
		if f, ok := faultOf(w); ok {
			faults = append(faults, f)
		}
	}
	slices.SortFunc(faults, func(f, g watchFault) int { return cmp.Or(f.compareWatch(g), f.compare(g)) })
	faults = slices.CompactFunc(faults, func(f, g watchFault) bool { return f.compareWatch(g) == 0 })
	slices.SortFunc(faults, watchFault.compare)

	return faults
}

// faultOf returns the fault of a watch, or false if it is current.
func faultOf[W Watch](watch W) (f watchFault, found bool) {
	var synced bool
	var err error
	switch w := any(watch).(type) {
	case clustercache.Use:
		f.cluster, f.gvk, synced, err = w.Key.Cluster, w.Key.GVK, w.Synced, w.LastError
	case status.Watch:
		f.cluster, f.gvk, synced, err = w.Cluster, w.GVK, w.Informer.Synced, w.LastError
	}
	if synced && err == nil {
		return watchFault{}, false
	}

	if err == nil {
		err = clustercache.ErrNotSynced
	}
	f.reason = explained(clustercache.ReasonOf(err))
	if errors.Is(err, transport.ErrShut) { // cut with its cluster, whose own condition has the cause
		f.reason = reasonNotConnected
	}
	switch {
	case !synced && (errors.Is(err, clustercache.ErrNotSynced) || errors.Is(err, clustercache.ErrConnecting)):
		f.severity = waiting
	case slices.Contains(lasting, f.reason):
		f.severity = refused
	case !synced:
		f.severity = missing
	default:
		f.severity = interrupted
	}

	return f, true
}

// listed explains the worst fault, names a few and counts the others.
func listed(faults []watchFault) string {
	named := make([]string, 0, maxNamed)
	for _, f := range faults[:min(maxNamed, len(faults))] {
		named = append(named, f.String())
	}
	text := explain(faults[0].reason) + " " + strings.Join(named, ", ")
	if more := len(faults) - len(named); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}

	return text
}
