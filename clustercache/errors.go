// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/transport"
)

var (
	// ErrUnknownCluster indicates that the cluster is not in use, or that the
	// resolver reports that it does not exist.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrNotConnected indicates that the cluster is not connected now; the
	// cause, if known, is wrapped with it.
	ErrNotConnected = connection.ErrNotConnected
	// ErrConnecting indicates that the first attempt to connect to the cluster
	// has not ended: nothing has failed yet. It wraps [ErrNotConnected].
	ErrConnecting = connection.ErrConnecting
	// ErrNotStarted indicates that Start was not called yet. It wraps
	// [ErrConnecting], and errors.As finds in it an ErrCacheNotStarted of
	// controller-runtime's cache.
	ErrNotStarted error = cacheNotStartedError{}
	// ErrNotSynced indicates that the informer that would answer has not
	// completed its first list. The object may exist.
	ErrNotSynced = errors.New("informer not synced")
	// ErrStale indicates that the cached state is older than the read allows.
	ErrStale = watchset.ErrStale
	// ErrNotWatched indicates that no informer covers a read that may only use
	// the cache.
	ErrNotWatched = errors.New("not watched")
	// ErrNotWatchable indicates that a kind cannot be watched: its resource has
	// no verb list, or, for reads in mode AutoWatch, no verb watch. Reads of it
	// go to the API server.
	ErrNotWatchable = watchset.ErrNotWatchable
	// ErrNotOwner indicates that another replica owns the cluster, or is about
	// to: a write was not sent, or its deadline ended with the ownership.
	ErrNotOwner = ownership.ErrNotOwner
	// ErrReleased indicates that the watch was released.
	ErrReleased = errors.New("watch released")
	// ErrClosed indicates that the ClusterCache was stopped.
	ErrClosed = connection.ErrClosed
	// ErrStarted indicates that Start was called twice.
	ErrStarted = errors.New("cluster cache started already")
	// ErrUnsupported indicates that the cache cannot answer a read, such as one
	// by a field without an index.
	ErrUnsupported = events.ErrUnsupported
	// ErrRefused indicates that the server answered with a redirect, which
	// policy forbids. Other refusals are a *resolver.RefusedError.
	ErrRefused = transport.ErrRefused
	// ErrBudget indicates that an answer or an informer exceeds its limit.
	// SECURITY.md lists the limits.
	ErrBudget = informerpool.ErrBudget
	// ErrKind indicates that a server answered with a kind other than the
	// requested one.
	ErrKind = informerpool.ErrKind
	// ErrAnswer indicates that a successful response holds a different object,
	// or cannot be decoded.
	ErrAnswer = liveclient.ErrAnswer
	// ErrNotKubernetes indicates that something other than a Kubernetes API
	// answered, such as a login page.
	ErrNotKubernetes = transport.ErrNotKubernetes
)

// IsWaiting reports whether an error may end by itself, because a cluster or an
// informer is not ready: [ErrNotConnected], [ErrUnknownCluster] or
// [ErrNotSynced]. The library keeps trying, and a change is an event of the
// cluster, of the watch, and of the owner that declared it
// ([ClusterCache.SubscribeOwners]): a reconciler that is called for these
// records [ReasonOf] the error, and need not try again. A refusal of the server
// is no waiting.
func IsWaiting(err error) bool {
	return errors.Is(err, ErrNotConnected) || errors.Is(err, ErrUnknownCluster) || errors.Is(err, ErrNotSynced)
}

// ownReasons are the reasons of this package's errors. Those of one group are
// in order: an error may be several of them.
var ownReasons = []struct {
	err    error
	reason string
}{
	{ErrNotStarted, "NotStarted"},
	{ErrConnecting, "Connecting"},
	{ErrClosed, "Closed"},
	{ErrReleased, "Released"},
	{ErrUnknownCluster, "UnknownCluster"},
	{ErrBudget, "OverBudget"},
	{ErrNotWatchable, "NotWatchable"},
	{informerpool.ErrOtherVersion, "NotServed"},
	{ErrNotWatched, "NotWatched"},
	{ErrNotSynced, "NotSynced"},
	{ErrUnsupported, "Unsupported"},
}

// ReasonOf returns the cause of an error in one word, for the reason of a
// condition or a label of a metric; the empty string for nil. docs/runbook.md
// has a section for most. The words are
//   - of a cluster that is not connected: Connecting, then the reasons of
//     [status.Cluster]; NotConnected if none is known; UnknownCluster, NotStarted;
//   - of a watch: NotServed, NotWatchable, NotWatched, NotSynced, Stale,
//     OverBudget;
//   - of a request: the reasons of API statuses, such as Forbidden, NotFound
//     and Conflict, and those of network failures, such as Throttled and
//     Timeout;
//   - Closed, Released, Unsupported, and Unknown for any other error.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	for _, own := range ownReasons {
		if errors.Is(err, own.err) {
			return own.reason
		}
	}
	if meta.IsNoMatchError(err) || unserved(err) {
		return "NotServed"
	}
	reason := connection.Reason(err)
	switch {
	case reason == string(transport.Forbidden), reason == string(transport.Unauthorized):
		return reason
	case errors.Is(err, ErrStale):
		return "Stale"
	case reason != string(transport.Unknown):
		return reason
	case errors.Is(err, ErrNotConnected):
		return "NotConnected"
	}
	if status := apierrors.ReasonForError(err); status != metav1.StatusReasonUnknown {
		return string(status)
	}

	return reason
}

// unserved reports whether an error is the answer that a resource, and not an
// object, does not exist.
func unserved(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// ClusterError names the cluster, and the kind if any, on which an operation
// failed. Its text holds no credential, and no text from a remote server beyond
// a bounded, printable API status message.
type ClusterError struct {
	Cluster client.ObjectKey
	// GVK is zero if the operation does not concern a kind.
	GVK schema.GroupVersionKind
	// Op is the operation: get, list, watch, connect, ...
	Op string
	// Err is the cause.
	Err error
}

// Error names the operation, the kind, the cluster and the cause.
func (e *ClusterError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if !e.GVK.Empty() {
		b.WriteString(" " + kindName(e.GVK))
	}
	name := clusterName(e.Cluster)
	return b.String() + " in cluster " + name + ": " + clustername.Omit(name, e.Err)
}

// Unwrap returns the cause.
func (e *ClusterError) Unwrap() error { return e.Err }

// OptionError names an invalid option.
type OptionError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("clustercache: option %s: %v", e.Field, e.Err)
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

func clusterName(key client.ObjectKey) string { return clustername.Of(key) }

func kindName(gvk schema.GroupVersionKind) string { return watchset.KindName(gvk) }

// objectName returns the name of an object for logs and errors.
func objectName(key client.ObjectKey) string { return watchset.ObjectName(key) }
