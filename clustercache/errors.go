// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/transport"
)

var (
	// ErrUnknownCluster indicates that nobody asked for the cluster, or that
	// the resolver says there is none.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrNotConnected indicates that the cluster cannot be reached now. The
	// cause, if known, is wrapped beside it; without any failure it is
	// [ErrConnecting].
	ErrNotConnected = errors.New("cluster not connected")
	// ErrConnecting indicates that the cluster was asked for, that its first
	// attempt to connect has not ended, and so that nothing has failed yet: a
	// controller that writes a status says "not yet" instead of "broken". It
	// wraps [ErrNotConnected].
	ErrConnecting = fmt.Errorf("%w: connecting, not failed yet", ErrNotConnected)
	// ErrNotStarted indicates that Start was not called yet, so that no cluster
	// is connected, and none is known by Options.Discover. It is an
	// [ErrConnecting], and to errors.As an ErrCacheNotStarted of
	// controller-runtime's cache.
	ErrNotStarted error = cacheNotStartedError{}
	// ErrNotSynced indicates that the informer that would answer has not listed
	// yet. It says nothing about any object.
	ErrNotSynced = errors.New("informer not synced")
	// ErrStale indicates that what is cached is older than the read allows.
	ErrStale = errors.New("cache too old for this read")
	// ErrNotWatched indicates that a read that may only use the cache is
	// covered by no informer.
	ErrNotWatched = errors.New("not watched")
	// ErrReleased indicates that the watch was released.
	ErrReleased = errors.New("watch released")
	// ErrClosed indicates that the ClusterCache was stopped.
	ErrClosed = errors.New("cluster cache closed")
	// ErrStarted indicates that Start was called before.
	ErrStarted = errors.New("cluster cache started already")
	// ErrUnsupported indicates that a read asks for what the cache cannot
	// answer, such as a field without an index.
	ErrUnsupported = errors.New("not supported by the cache")
	// ErrRefused indicates that the operator's own policy forbids the way to a
	// cluster: it answers with a redirect. What a dial policy or a kubeconfig
	// is refused for is told by a *resolver.RefusedError.
	ErrRefused = transport.ErrRefused
	// ErrBudget indicates that an answer, or an informer, takes more than its
	// limit: SECURITY.md has a table of them.
	ErrBudget = informerpool.ErrBudget
	// ErrKind indicates that a server answered with another kind than was asked
	// for.
	ErrKind = informerpool.ErrKind
	// ErrAnswer indicates that a success is not the answer to what was asked:
	// its object is another one than was read, or it cannot be decoded.
	ErrAnswer = errors.New("answer cannot be used")
	// ErrNotKubernetes indicates that something else than a Kubernetes API
	// answers, such as a login page.
	ErrNotKubernetes = transport.ErrNotKubernetes
)

// ClusterError says which cluster, and which kind if any, an operation failed
// on. Its text holds no credential and nothing a remote server wrote beyond a
// bounded, printable API status message.
type ClusterError struct {
	Cluster client.ObjectKey
	// GVK is zero where no kind is concerned.
	GVK schema.GroupVersionKind
	// Op is what was tried: get, list, watch, connect, ...
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
	return b.String() + " in cluster " + name + ": " + unnamed(name, e.Err)
}

// unnamed returns the text of an error without the cluster's name, for where
// that is told already. The errors of the transport and of resolvers name it,
// since they are also met alone.
func unnamed(cluster string, err error) string {
	return strings.NewReplacer("cluster "+strconv.Quote(cluster)+": ", "", "cluster "+cluster+": ", "").Replace(fmt.Sprint(err))
}

// Unwrap returns the cause.
func (e *ClusterError) Unwrap() error { return e.Err }

// OptionError says which option is unusable.
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

func kindName(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Version + " " + gvk.Kind
	}
	return gvk.Group + "/" + gvk.Version + " " + gvk.Kind
}
