// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"flag"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestContextsAreLoadedByName(t *testing.T) {
	file := clientcmdapi.NewConfig()
	for _, name := range []string{"a", "b", "c"} {
		file.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ".example.com"}
		file.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, path))

	parse := func(args ...string) (c Contexts, err error) {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		c.Flags(flags, "the `file`", "a `context`")
		return c, flags.Parse(args)
	}
	c, err := parse("-kubeconfig", path, "-context", "a", "-context", "c")
	require.NoError(t, err)
	require.NoError(t, c.Check())
	require.True(t, c.Given())
	configs, err := c.Load()
	require.NoError(t, err)
	require.Len(t, configs, 2)
	require.Equal(t, "https://a.example.com", configs[c.First()].Host)
	require.Equal(t, "https://c.example.com", configs[client.ObjectKey{Name: "c"}].Host)

	c, err = parse("-kubeconfig", path, "-context", "d")
	require.NoError(t, err)
	_, err = c.Load()
	require.ErrorContains(t, err, `no context "d"; it has a, b, c`)

	_, err = parse("-context", "a", "-context", "a")
	require.ErrorContains(t, err, "given twice")
	for _, half := range [][]string{{"-kubeconfig", path}, {"-context", "a"}} {
		c, err = parse(half...)
		require.NoError(t, err)
		require.ErrorContains(t, c.Check(), "need each other")
	}
}
