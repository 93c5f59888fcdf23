// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Controller reconciles the objects of a kind in many clusters, with the inputs
// that kube-rs gives a Controller<K>: what it owns, what it watches through a
// mapping, bursts that are debounced, triggers of one object and of all, and an
// end that waits for the reconciles under way:
//
//	go run ./examples/controller
//
// starts two clusters, runs the operator as a second process, and shows each of
// these. It checks everything it shows, and exits with status 1 if something does
// not happen as it should. The first run builds the servers, which takes minutes;
// later ones take seconds. With -embedded they are API servers in memory: nothing
// is built, the second process reaches them all the same, and what they cannot
// show is printed. With
//
//	go run ./examples/controller -kubeconfig FILE -context A -context B
//
// the operator runs on your own clusters, which must serve Sites, until SIGTERM;
// its standard input are triggers. It writes a ConfigMap for each Site.
//
// The files operator.go, gate.go and reconciler.go are what your own operator
// needs; the rest is the demonstration.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() { program().Main() }

func program() story.Program {
	var contexts fleet.Contexts
	var local fleet.Local
	return story.Program{
		Name: "controller",
		Flags: func(flags *flag.FlagSet) {
			contexts.Flags(flags, "reconcile the Sites in clusters of this `file`; needs -context",
				"a `context` of the kubeconfig; can be repeated")
			local.Flags(flags)
		},
		Check: func() error {
			if local.Embedded && contexts.Given() {
				return errors.New("-embedded cannot be combined with -kubeconfig")
			}
			return contexts.Check()
		},
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			if contexts.Given() {
				return operate(ctx, contexts, os.Stdin, out, log)
			}
			return tell(ctx, local, out)
		},
	}
}
