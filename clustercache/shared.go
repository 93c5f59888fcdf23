// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/misfit"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// shared is what the parts of a ClusterCache share. It knows none of them.
type shared struct {
	*lifetime

	options Options
	log     logr.Logger
	misfits misfit.Log
	calls   *callback.Calls // of the functions that the operator gave
	timers  *timetable.Timers
	pool    *informerpool.Pool
	tenure  *tenure.Tenure // nil without Options.Sharding
	metrics *metrics

	events  *broadcaster              // of clusters
	watches levelHub[status.WatchKey] // the watches that changed
	owners  levelHub[Owner]           // the owners whose reads may be answered differently
}

// observed reports whether changes of watches are of interest.
func (s *shared) observed() bool { return s.watches.any() || s.owners.any() }
