// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
)

// The documentation of these is that of the ClusterCache's errors of the same
// names.
var (
	ErrNotConnected = errors.New("cluster not connected")
	ErrConnecting   = fmt.Errorf("%w: connecting, not failed yet", ErrNotConnected)
	ErrClosed       = errors.New("cluster cache closed")
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
