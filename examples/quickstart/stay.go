// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/internal/testenv"
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
	merged, err := mergeKubeconfigs(s.env.Clusters...)
	if err != nil {
		return err
	}
	merged.CurrentContext = s.hub.Name()
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		return err
	}
	s.out.chapter("Now you: Ctrl-C ends it")
	for _, command := range []string{
		"export KUBECONFIG=" + path,
		"kubectl --context east --namespace demo create configmap mine --from-literal=a=b",
		"kubectl --context west --namespace demo delete widget pump",
		"go run ./examples/quickstart -kubeconfig $KUBECONFIG -context east -context west",
	} {
		s.out.print("         " + command + "\n")
	}
	s.stay(ctx)
	return nil
}

// mergeKubeconfigs returns the administrators' kubeconfigs of clusters as one,
// with a context named after each.
func mergeKubeconfigs(clusters ...*testenv.Cluster) (*clientcmdapi.Config, error) {
	merged := clientcmdapi.NewConfig()
	for _, c := range clusters {
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			return nil, err
		}
		in := one.Contexts[one.CurrentContext]
		merged.Clusters[c.Name()] = one.Clusters[in.Cluster]
		merged.AuthInfos[c.Name()] = one.AuthInfos[in.AuthInfo]
		merged.Contexts[c.Name()] = &clientcmdapi.Context{Cluster: c.Name(), AuthInfo: c.Name()}
	}
	return merged, nil
}
