// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import "context"

// stayLocal keeps the clusters running until ctx ends, with a kubeconfig file
// for access to them.
func (s *localStory) stayLocal(ctx context.Context) error {
	path, err := s.WriteKubeconfig()
	if err != nil {
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
