// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Clusterapi runs one controller, written for Cluster API's ClusterCache, with
// that ClusterCache and then with fleetcache's, and shows what differs. It
// starts a hub and two remote clusters by itself:
//
//	go -C examples/clusterapi run .
//
// It checks everything it shows, and exits with status 1 if something does not
// happen as it should. The first run builds etcd and kube-apiserver, which takes
// minutes.
package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() {
	story.Program{
		Name: "clusterapi",
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) (err error) {
			ctrl.SetLogger(log)
			f, err := fleet.Local{}.Start(ctx, out, "A hub and two remote clusters", "hub", "east", "west")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Stop()) }()
			return tell(ctx, out, f)
		},
	}.Main()
}
