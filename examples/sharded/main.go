// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Sharded shows the replicas of an operator that share six clusters. It starts
// a hub and six remote clusters by itself, and three replicas as processes of
// their own. One is killed, one joins, one is stopped and continued, one is
// drained, and the hub refuses renewals, becomes slow, goes away and comes back.
// Meanwhile objects change in all clusters, and the replicas reconcile them:
//
//	go run ./examples/sharded
//
// The judge is what the remote API servers have received, by their audit logs.
// If something is not as it should be, the program reports that, and exits with
// status 1. It takes about four minutes. With -away 5m the hub is away for
// that long.
//
//	the program ──starts, kills, stops──► replica-0, replica-1, replica-2, ...
//	     ├──refuses and delays writes──────► gate            │
//	     │                                   │ Leases        │ widgets
//	     └──changes widgets, reads audits──► hub             six remote clusters
//
// The files replica.go and stamper.go are what your own operator needs; the
// rest is the demonstration. With -replica the program is one replica, which
// finds the hub as any controller does (KUBECONFIG, or the ServiceAccount of
// its Pod), and its name and namespace in POD_NAME and POD_NAMESPACE.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// away is how long the hub is away in the short form. The replicas give up
// their clusters after 10 s of it.
const away = 40 * time.Second

// settings are the values of the command line.
type settings struct {
	replica bool
	reads   time.Duration
	probes  string
	away    time.Duration
}

func main() { program().Main() }

func program() story.Program {
	var s settings
	return story.Program{
		Name: "sharded",
		Flags: func(flags *flag.FlagSet) {
			flags.BoolVar(&s.replica, "replica", false, "be one replica, and print what happens to it as JSON")
			flags.DurationVar(&s.reads, "reads", 0,
				"with -replica: also print what the caches contain, at this `interval`")
			flags.StringVar(&s.probes, "probes", "",
				"with -replica: serve /healthz and /readyz at this `address` (default: not at all)")
			flags.DurationVar(&s.away, "away", away, "how long the hub is away, at least 30s")
		},
		Check: func() error {
			if s.away < 30*time.Second {
				return errors.New("-away must be at least 30s")
			}
			return nil
		},
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			if s.replica {
				return beReplica(ctx, s, out, log)
			}
			return show(ctx, s, out)
		},
	}
}
