// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import "errors"

// ErrStopped indicates that a cluster has been stopped for good.
var ErrStopped = errors.New("cluster has been stopped")

// errNotRunning indicates that a process which should get a signal is not
// running.
var errNotRunning = errors.New("not running")
