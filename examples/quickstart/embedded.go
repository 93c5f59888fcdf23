// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/fleetcache/fleetcache/examples/internal/embedded"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// startEmbedded starts three API servers in memory, which end with stop, and
// prints what cannot be shown with them.
func startEmbedded(_ context.Context, out *story.Printer) (*localFleet, error) {
	out.Chapter("A hub and two remote clusters, in the memory of this process")
	f, err := embedded.Start("hub", "east", "west")
	if err != nil {
		return nil, err
	}
	for _, line := range []string{
		"three API servers in memory serve, and so does the network to them; nothing was built or started",
		"what they do not show: etcd; processes, ports and files, so that kubectl cannot reach them; admission,",
		"rights, defaults and schemas; and how long a real API server takes to answer or to start",
	} {
		out.Say("%s", line)
	}
	hub, east, west := f.Clusters[0], f.Clusters[1], f.Clusters[2]
	return &localFleet{
		hub:   hub,
		east:  newRemote(east, east.Kubeconfig()),
		west:  newRemote(west, west.Kubeconfig()),
		road:  west,
		reach: f.Reach,
		stop: func() error {
			f.Stop()
			return nil
		},
		words: words{
			killed:  "as after kill -9: east's connections are reset, and new ones refused",
			record:  "record of requests",
			stopped: "the clusters are gone: they were in memory alone",
			last:    "the same with real API servers, processes that are killed included: go run ./examples/quickstart",
		},
	}, nil
}
