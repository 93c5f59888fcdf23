// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Rollout shows an operator that rolls modules out to many clusters, in waves.
// It starts a hub and three remote clusters by itself, one of which is not
// there at first, and shows how waves follow each other, how a cluster joins,
// how a failure stops the rollout, and that nothing is polled:
//
//	go run ./examples/rollout
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

func main() {
	story.Program{Name: "rollout", Run: run}.Main()
}

// run starts the clusters and the operator, and shows what happens.
func run(ctx context.Context, out *story.Printer, log logr.Logger) (err error) {
	out.Chapter("A hub and three remote clusters, on this machine")
	f, err := fleet.Start(ctx, out, "canary", "east", "west")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Stop())
		out.Say("the clusters are stopped, and their files removed")
	}()
	d := newDemo(out, f)
	if err := d.furnish(ctx); err != nil {
		return err
	}
	return d.during(ctx, log, d.show)
}
