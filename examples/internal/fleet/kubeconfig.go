// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Contexts are contexts of the user's own kubeconfig file.
type Contexts struct {
	File  string
	Names []string
}

// Flags defines -kubeconfig, with usage as its description, and -context.
func (c *Contexts) Flags(flags *flag.FlagSet, usage, contextUsage string) {
	flags.StringVar(&c.File, "kubeconfig", "", usage)
	flags.Func("context", contextUsage, func(name string) error {
		if name == "" || slices.Contains(c.Names, name) {
			return errors.New("empty or given twice")
		}
		c.Names = append(c.Names, name)
		return nil
	})
}

// Given reports whether there is a file to read.
func (c *Contexts) Given() bool { return c.File != "" }

// Check returns an error if a file is given without contexts, or contexts
// without a file.
func (c *Contexts) Check() error {
	if (c.File == "") != (len(c.Names) == 0) {
		return errors.New("-kubeconfig and -context need each other")
	}
	return nil
}

// Load reads the contexts as kubectl does, without restrictions, since the file
// is the user's own. A cluster has the name of its context.
func (c *Contexts) Load() (map[client.ObjectKey]*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(c.File)
	if err != nil {
		return nil, err
	}
	configs := map[client.ObjectKey]*rest.Config{}
	for _, name := range c.Names {
		if file.Contexts[name] == nil {
			return nil, fmt.Errorf("%s has no context %q; it has %s",
				c.File, name, strings.Join(slices.Sorted(maps.Keys(file.Contexts)), ", "))
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.File}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
			&clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("context %q: %w", name, err)
		}
		configs[client.ObjectKey{Name: name}] = config
	}
	return configs, nil
}

// First returns the cluster of the context that was given first.
func (c *Contexts) First() client.ObjectKey { return client.ObjectKey{Name: c.Names[0]} }

// WriteKubeconfig writes a file with the administrators' kubeconfigs of all
// clusters: a context named after each, of which the first is the current one.
func (f *Fleet) WriteKubeconfig() (path string, err error) {
	merged := clientcmdapi.NewConfig()
	merged.CurrentContext = f.Hub.Name()
	for _, c := range f.Clusters() {
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			return "", err
		}
		in := one.Contexts[one.CurrentContext]
		merged.Clusters[c.Name()] = one.Clusters[in.Cluster]
		merged.AuthInfos[c.Name()] = one.AuthInfos[in.AuthInfo]
		merged.Contexts[c.Name()] = &clientcmdapi.Context{Cluster: c.Name(), AuthInfo: c.Name()}
	}
	content, err := clientcmd.Write(*merged)
	if err != nil {
		return "", err
	}
	return f.WriteFile("kubeconfig", content)
}

// WriteFile writes a temporary file, which Stop removes.
func (f *Fleet) WriteFile(name string, content []byte) (path string, err error) {
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "fleetcache-example-"); err != nil {
			return "", err
		}
	}
	path = filepath.Join(f.dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
