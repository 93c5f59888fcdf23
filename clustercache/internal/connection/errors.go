// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"net"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// The documentation of these is that of the ClusterCache's errors of the same
// names.
var (
	ErrNotConnected = errors.New("cluster not connected")
	ErrConnecting   = fmt.Errorf("%w: connecting, not failed yet", ErrNotConnected)
	ErrClosed       = errors.New("cluster cache closed")
)

var (
	// errOtherCluster indicates that another cluster than before answers at the
	// address.
	errOtherCluster = fmt.Errorf("%w: another cluster answers", ErrNotConnected)
	// ErrMoved indicates that another history began while a request was under
	// way.
	ErrMoved = fmt.Errorf("%w: another history began during the request", ErrNotConnected)
	// errUnsteady indicates that connections were made faster than the identity
	// could be queried.
	errUnsteady = fmt.Errorf("%w: connections do not last", ErrNotConnected)
)

// Reasons of a phase, besides the classes of errors of the transport. They are
// documented in package clustercache.
const (
	ReasonNoAccess        = "NoAccess"
	ReasonClusterNotFound = "ClusterNotFound"
	ReasonBadAccess       = "BadAccess"
	ReasonRefused         = "Refused"
	ReasonReleased        = "Released"
	ReasonUnhealthy       = "Unhealthy"
)

// failure returns the event of an attempt that ended with err.
func failure(revision string, err error) phase.Event {
	e := phase.Event{Kind: phase.Failed, Revision: revision, Err: err}
	e.Class, e.Reason = classify(err)
	e.Early = errors.Is(err, resolver.ErrNotReady)
	e.Alive = unhealthy(err) != nil
	return e
}

// Reason returns the reason of an error, in one word.
func Reason(err error) string {
	_, reason := classify(err)
	return reason
}

// classify returns the class and the reason of an error.
func classify(err error) (phase.Class, string) {
	if _, ok := errors.AsType[*resolver.RefusedError](err); ok {
		return phase.Policy, ReasonRefused
	}
	if _, ok := errors.AsType[*resolver.KubeconfigError](err); ok {
		return phase.Trouble, ReasonBadAccess
	}
	if unhealthy(err) != nil {
		return phase.Trouble, ReasonUnhealthy
	}
	switch {
	case goneForSure(err):
		return phase.NoCluster, ReasonClusterNotFound
	case errors.Is(err, resolver.ErrNoAccess):
		return phase.NoAccess, ReasonNoAccess
	case errors.Is(err, resolver.ErrKeyMissing):
		return phase.Trouble, ReasonBadAccess
	}

	class := transport.Classify(err)
	switch class {
	case transport.Unauthorized:
		return phase.Rejected, string(class)
	case transport.Refused:
		return phase.Policy, string(class)
	case transport.Throttled:
		return phase.Busy, string(class)
	case transport.Unreachable:
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			return phase.Trouble, string(class) // says nothing about the server
		}
		return phase.Unreachable, string(class)
	default:
		return phase.Trouble, string(class)
	}
}
