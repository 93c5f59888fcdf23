// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Pipeline promotes a version from environment to environment. A Pipeline in
// the hub names the objects of each environment: of any kind, in any cluster,
// the hub included. The next environment gets the version once all objects of
// the one before are ready with it.
//
//	go run ./examples/pipeline
//
// The program starts a hub and two remote clusters by itself. It checks
// everything it shows: if something does not happen as it should, it reports
// that, and exits with status 1.
//
// With -embedded, the clusters are API servers in memory: nothing is built, and
// the same is shown within seconds. What that cannot show is printed.
//
// The files pipeline.go, reconciler.go and operator.go are the operator; the
// rest is the demonstration.
package main

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() { program().Main() }

func program() story.Program {
	var local fleet.Local
	return story.Program{
		Name:  "pipeline",
		Flags: local.Flags,
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			return show(ctx, local, out, log)
		},
	}
}
