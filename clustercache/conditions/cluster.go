// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"cmp"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// TypeClusterReady is the type of the condition that [ClusterReady] returns.
const TypeClusterReady = "ClusterReady"

// ClusterReady returns the condition ClusterReady of a cluster:
//   - True, with the reason Ready, if it is connected and its phase is Ready.
//     There is a message only while newer access does not work;
//   - Unknown while nothing has failed and the first attempt to connect has not
//     ended, with the phase as the reason; and for the zero Status, which the
//     ClusterCache returns for a cluster that is not in use (UnknownCluster);
//   - False otherwise. The reason is Status.Reason, or the phase if there is
//     none.
//
// The message of BadAccess, Refused and NoAccess names the object and the field
// at fault, if the resolver reports them in the errors of package resolver.
//
// With Options.Sharding the condition is about this replica: only the owner of
// a cluster should write it.
func ClusterReady(s status.Cluster, observedGeneration int64) metav1.Condition {
	c := metav1.Condition{
		Type:               TypeClusterReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: observedGeneration,
	}
	switch {
	case s.Phase == status.PhaseReady && s.Connected:
		c.Status, c.Reason = metav1.ConditionTrue, string(status.PhaseReady)
		if s.Reason != "" && s.Reason != "Throttled" && !ofWatch(s.LastError) { // which is no fault of the access
			c.Message = "Newer access does not work. " + fault(explained(s.Reason), s.LastError)
		}
		return c
	case s.Phase == "":
		c.Status, c.Reason = metav1.ConditionUnknown, reasonUnknownCluster
	case s.Phase == status.PhaseConnecting, s.Phase == status.PhasePending && s.Reason == "":
		c.Status, c.Reason = metav1.ConditionUnknown, explained(string(s.Phase))
	case s.Phase == status.PhaseReady: // and not connected
		c.Reason = reasonNotConnected
	default:
		c.Reason = explained(cmp.Or(s.Reason, string(s.Phase)))
	}
	if c.Status == metav1.ConditionUnknown {
		c.Message = explain(c.Reason)
	} else {
		c.Message = fault(c.Reason, s.LastError)
	}

	return c
}

// fault explains a reason, and names the object and the field at fault if they
// are known.
func fault(reason string, err error) string {
	text := explain(reason)
	parts := faulty(err)
	if len(parts) == 0 {
		return text
	}
	return text + " " + strings.Join(parts, ": ")
}

// faulty returns the object, and what is wrong with it, that a resolver's error
// names. It reads typed errors alone, since other texts may differ from one
// attempt to the next.
func faulty(err error) (parts []string) {
	add := func(part string) { parts = append(parts, clip(part, maxPart)) }
	if access, ok := errors.AsType[*resolver.AccessError](err); ok && access.Ref != (resolver.ObjectRef{}) {
		add(access.Ref.String())
	}
	if bad, ok := errors.AsType[*resolver.KubeconfigError](err); ok {
		add(bad.Error())
	}
	if refused, ok := errors.AsType[*resolver.RefusedError](err); ok {
		// A name may have several addresses, of which another is tried next time.
		field, _, _ := strings.Cut(refused.Field, " ")
		add("refused: " + field + " " + refused.Reason)
	}
	for _, sentinel := range []error{resolver.ErrSecretNotFound, resolver.ErrNotReady, resolver.ErrKeyMissing} {
		if errors.Is(err, sentinel) {
			add(sentinel.Error())
		}
	}

	return parts
}

// ofWatch reports whether the error of a cluster is that of one of its watches:
// see WatchesSynced.
func ofWatch(err error) bool {
	failed, ok := errors.AsType[*clustercache.ClusterError](err)
	return ok && failed.Op == "watch"
}
