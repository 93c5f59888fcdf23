// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart shows the library at work. It starts a hub and two remote clusters
// by itself, runs an operator in the hub that watches ConfigMaps and the
// objects of a custom kind in both remote clusters, and shows what happens when
// objects change, when a cluster dies, when a connection is cut, and when an
// informer loses its last user:
//
//	go run ./examples/quickstart
//
// It checks everything it shows: if something does not happen as it should, it
// reports that, and exits with status 1. The first run builds etcd and
// kube-apiserver, which takes 4 to 10 minutes on two cores; later ones take
// about half a minute. If KUBEBUILDER_ASSETS names a directory that has both
// programs, nothing is built. With -stay it keeps running until it is
// interrupted, and prints how kubectl reaches the clusters. With
//
//	go run ./examples/quickstart -embedded
//
// it shows the same within seconds on API servers in memory, and prints what they
// cannot show. With
//
//	go run ./examples/quickstart -kubeconfig FILE -context A -context B
//
// it shows the same with your own clusters, as far as that is possible without
// changing anything in them.
//
// The files operator.go and reconciler.go are what your own operator needs; the
// rest is the demonstration.
package main

import (
	"context"
	"errors"
	"flag"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() { quickstart().Main() }

// settings are the values of the command line.
type settings struct {
	contexts fleet.Contexts
	local    fleet.Local
	stay     bool
}

func (s *settings) check() error {
	if s.local.Embedded && (s.stay || s.contexts.Given()) {
		return errors.New("-embedded cannot be combined with -stay or -kubeconfig")
	}
	return s.contexts.Check()
}

func quickstart() story.Program {
	var s settings
	return story.Program{
		Name: "quickstart",
		Flags: func(flags *flag.FlagSet) {
			s.contexts.Flags(flags,
				"use the clusters of this `file` and change nothing in them; needs -context",
				"a `context` of the kubeconfig; can be repeated. The operator runs in the first one's cluster")
			s.local.Flags(flags)
			flags.BoolVar(&s.stay, "stay", false, "go on until interrupted")
		},
		Check: s.check,
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			if s.contexts.Given() {
				return tellExisting(ctx, s, out, log)
			}
			return tellLocal(ctx, s, out, log)
		},
	}
}
