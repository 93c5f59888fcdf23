// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import "time"

// The documented defaults of clustercache.Options.
const (
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
	maxBackoff    = 30 * time.Second
	staleAfter    = 3 * time.Minute
	grace         = 30 * time.Second
)
