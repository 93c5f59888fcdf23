// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
)

// stayLocal keeps the clusters running until ctx ends, with a kubeconfig file
// for access to them.
func (s *localStory) stayLocal(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "fleetcache-quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "kubeconfig")
	merged, err := fleet.Kubeconfig(s.Clusters()...)
	if err != nil {
		return err
	}
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		return err
	}
	s.Chapter("Now you: Ctrl-C ends it")
	for _, command := range []string{
		"export KUBECONFIG=" + path,
		"kubectl --context east --namespace demo create configmap mine --from-literal=a=b",
		"kubectl --context west --namespace demo delete widget pump",
		"go run ./examples/quickstart -kubeconfig $KUBECONFIG -context east -context west",
	} {
		s.Print("         " + command + "\n")
	}
	s.stay(ctx)
	return nil
}
