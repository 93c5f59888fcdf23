// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// Option changes how [Start] and [Run] start clusters.
type Option func(*options)

type options struct {
	log           func(string)
	names         []string
	crds          []*apiextensionsv1.CustomResourceDefinition
	apiServerArgs [][2]string
	kubernetes    string
	sharedPKI     bool
}

func newOptions(given []Option) options {
	o := options{log: progress()}
	for _, option := range given {
		option(&o)
	}
	return o
}

// name returns the name of the i-th cluster.
func (o options) name(i int) string {
	if i < len(o.names) {
		return o.names[i]
	}
	return fmt.Sprintf("cluster-%d", i+1)
}

// WithLog sets the function that receives lines of progress about builds and
// starts. It is called from several goroutines, one call at a time. By default
// the lines go to standard error, and also to the terminal if that is a
// different file.
func WithLog(log func(line string)) Option {
	return func(o *options) {
		var mu sync.Mutex // serializes the calls
		o.log = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			log(line)
		}
	}
}

// WithNames sets the names of the clusters, in order. Default: cluster-1,
// cluster-2 and so on.
func WithNames(names ...string) Option {
	return func(o *options) { o.names = names }
}

// WithCRDs installs the definitions in every cluster before it is returned.
func WithCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(o *options) { o.crds = append(o.crds, crds...) }
}

// WithAPIServerArgs sets arguments of the form --flag=value for every API
// server, replacing defaults for the same flags. It panics if an argument has
// another form.
func WithAPIServerArgs(args ...string) Option {
	parsed := parseArgs(args)
	return func(o *options) { o.apiServerArgs = append(o.apiServerArgs, parsed...) }
}

// parseArgs splits arguments. It panics if one does not have the form
// --flag=value.
func parseArgs(args []string) [][2]string {
	parsed := make([][2]string, 0, len(args))
	for _, arg := range args {
		flag, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok || !strings.HasPrefix(arg, "--") {
			panic("testenv: not of the form --flag=value: " + arg)
		}
		parsed = append(parsed, [2]string{flag, value})
	}

	return parsed
}

// WithKubernetes starts an etcd and API servers of a version of Kubernetes,
// given as 1.34.4 or as 1.34, instead of those that the environment specifies
// (see package assets).
func WithKubernetes(version string) Option {
	return func(o *options) { o.kubernetes = version }
}

// find returns the programs for the clusters.
func (o options) find(ctx context.Context) (assets.Binaries, error) {
	if o.kubernetes != "" {
		return assets.FindVersion(ctx, o.kubernetes, o.log)
	}
	return assets.Find(ctx, o.log)
}

// WithSharedPKI gives all clusters of the call the same authorities, keys and
// administrator. A client that can connect to one of them can connect to all,
// and cannot distinguish them by TLS.
func WithSharedPKI() Option {
	return func(o *options) { o.sharedPKI = true }
}

// progress returns the default log. When go test runs several packages, it
// shows a package's output only after the package has ended. So that a first
// build does not look like a hang, the lines also go to the terminal.
func progress() func(string) {
	var mu sync.Mutex // serializes the lines
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()

		line = "testenv: " + line + "\n"
		_, _ = io.WriteString(os.Stderr, line)
		if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
			return
		}
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			_, _ = io.WriteString(tty, line)
			_ = tty.Close()
		}
	}
}
