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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/transport"
)

var (
	// ErrUnknownCluster indicates that the cluster is not in use, or that the
	// resolver has none of its key.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrNotConnected indicates that the cluster is not connected now; a known
	// cause is wrapped with it.
	ErrNotConnected = connection.ErrNotConnected
	// ErrConnecting is the [ErrNotConnected] of a cluster to which the first
	// attempt to connect has not ended: nothing has failed yet.
	ErrConnecting = connection.ErrConnecting
	// ErrNotStarted is the [ErrConnecting] before Start. errors.As finds in it
	// an ErrCacheNotStarted of controller-runtime's cache.
	ErrNotStarted error = cacheNotStartedError{}
	// ErrNotSynced indicates that the informer has not completed its first
	// list. The object may exist.
	ErrNotSynced = errors.New("informer not synced")
	// ErrStale indicates that the cached state is older than the read allows.
	ErrStale = wants.ErrStale
	// ErrNotWatched indicates that no informer covers the read.
	ErrNotWatched = errors.New("not watched")
	// ErrNotWatchable indicates that a kind cannot be watched: its resource has
	// no verb list, or, for reads in mode AutoWatch, no verb watch.
	ErrNotWatchable = wants.ErrNotWatchable
	// ErrNotOwner indicates that another replica owns the cluster, or is about
	// to.
	ErrNotOwner = ownership.ErrNotOwner
	// ErrReleased indicates that the watch was released.
	ErrReleased = errors.New("watch released")
	// ErrClosed indicates that the ClusterCache was stopped.
	ErrClosed = connection.ErrClosed
	// ErrStarted indicates that Start was called twice.
	ErrStarted = errors.New("cluster cache started already")
	// ErrUnsupported indicates a read that the cache cannot answer, such as one
	// by a field without an index.
	ErrUnsupported = events.ErrUnsupported
	// ErrRefused indicates a redirect, which policy forbids. Other refusals are
	// a *resolver.RefusedError.
	ErrRefused = transport.ErrRefused
	// ErrBudget indicates that an answer or an informer exceeds a limit of
	// SECURITY.md.
	ErrBudget = informerpool.ErrBudget
	// ErrKind indicates an answer of another kind than the requested one.
	ErrKind = informerpool.ErrKind
	// ErrAnswer indicates that a successful response holds another object, or
	// cannot be decoded.
	ErrAnswer = liveclient.ErrAnswer
	// ErrNotKubernetes indicates that no Kubernetes API answered, but something
	// else, such as a login page.
	ErrNotKubernetes = transport.ErrNotKubernetes
)

var (
	errNilCallback = errors.New("required")
	errNotPositive = errors.New("not positive")
)

// cacheNotStartedError is the type of ErrNotStarted, which has its own text.
type cacheNotStartedError struct{}

func (cacheNotStartedError) Error() string { return "cluster not connected: cluster cache not started" }

// Unwrap makes it an ErrConnecting, and thus an ErrNotConnected: nothing
// failed.
func (cacheNotStartedError) Unwrap() error { return ErrConnecting }

// As makes it the error of controller-runtime's cache, too. By that error,
// programs decide to read from the API server during set-up.
func (cacheNotStartedError) As(target any) bool {
	to, ok := target.(**cache.ErrCacheNotStarted)
	if ok {
		*to = &cache.ErrCacheNotStarted{}
	}
	return ok
}

// IsWaiting reports whether an error may end by itself, because a cluster or an
// informer is not ready: [ErrNotConnected], [ErrUnknownCluster] or
// [ErrNotSynced]. The library keeps trying, and a change is an event: a
// reconciler that is called for those of clusters, watches or owners records
// [ReasonOf] the error, and need not try again.
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
//   - of a cluster: Connecting, then the reasons of [status.Cluster];
//     NotConnected if none is known; UnknownCluster, NotStarted;
//   - of a watch: NotServed, NotWatchable, NotWatched, NotSynced, Stale,
//     OverBudget;
//   - of a request: the reasons of API statuses, such as Forbidden and
//     Conflict, and those of network failures, such as Timeout;
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

// translate turns the pool's sentinel errors into those of this package, and
// returns others unchanged.
func translate(err error) error {
	switch {
	case errors.Is(err, informerpool.ErrReleased):
		return ErrReleased
	case errors.Is(err, informerpool.ErrClosed):
		return ErrClosed
	case errors.Is(err, informerpool.ErrNotSynced):
		return ErrNotSynced
	}

	return err
}

// ClusterError names the cluster, and the kind if any, on which an operation
// failed. Its text has no credential, and from a remote server no more than a
// bounded, printable status message.
type ClusterError struct {
	Cluster client.ObjectKey
	// GVK is zero if the operation does not concern a kind.
	GVK schema.GroupVersionKind
	// Op is the operation: get, list, watch, connect, ...
	Op string
	// Err is the cause.
	Err error
}

// Error implements error.
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

// clusterError returns a [*ClusterError].
func clusterError(op string, cluster client.ObjectKey, gvk schema.GroupVersionKind, err error) error {
	return &ClusterError{
		Cluster: cluster,
		GVK:     gvk,
		Op:      op,
		Err:     err,
	}
}

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

func kindName(gvk schema.GroupVersionKind) string { return wants.KindName(gvk) }

// objectName returns the name of an object for logs and errors.
func objectName(key client.ObjectKey) string { return wants.ObjectName(key) }
