// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Rollout shows an operator that rolls modules out to many clusters, in waves.
// It starts a hub and three remote clusters by itself, one of which is not
// there at first, and shows how waves follow each other, how a cluster joins,
// how a failure stops the rollout, and that nothing is polled:
//
//	go run ./examples/rollout
//
// With -embedded, the clusters are API servers in memory: nothing is built, and
// the same is shown within seconds. What that cannot show is printed.
//
// It checks everything it shows, and exits with status 1 if something does not
// happen as it should. README.md has its output.
//
// Package rolling is the controller, package api has its kinds, and operator is
// the program to deploy; the rest is the demonstration.
package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() { program().Main() }

func program() story.Program {
	var local fleet.Local
	return story.Program{
		Name:  "rollout",
		Flags: local.Flags,
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			return run(ctx, local, out, log)
		},
	}
}

// run starts the clusters and the operator, and shows what happens.
func run(ctx context.Context, local fleet.Local, out *story.Printer, log logr.Logger) (err error) {
	f, err := local.Start(ctx, out, "A hub and three remote clusters", "hub", "canary", "east", "west")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	d := newDemo(out, f)
	if err := d.furnish(ctx); err != nil {
		return err
	}
	return d.during(ctx, log, d.show)
}
