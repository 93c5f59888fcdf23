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

// Option changes what [Start] and [Run] start.
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

// name returns the name of the cluster with the given index.
func (o options) name(i int) string {
	if i < len(o.names) {
		return o.names[i]
	}
	return fmt.Sprintf("cluster-%d", i+1)
}

// WithLog sends lines of progress, which tell of builds and starts, to a
// function. It is called from several goroutines, one call at a time. Default:
// the standard error output, and the terminal if that is another place.
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

// WithNames names the clusters, in order. Default: cluster-1, cluster-2 and so
// on.
func WithNames(names ...string) Option {
	return func(o *options) { o.names = names }
}

// WithCRDs installs the definitions in every cluster before it is handed out.
func WithCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(o *options) { o.crds = append(o.crds, crds...) }
}

// WithAPIServerArgs sets arguments of the form --flag=value of every API
// server, in the place of a default if there is one. It panics if one has
// another form.
func WithAPIServerArgs(args ...string) Option {
	parsed := parseArgs(args)
	return func(o *options) { o.apiServerArgs = append(o.apiServerArgs, parsed...) }
}

// parseArgs splits arguments. It panics if one is not of the form --flag=value.
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
// given as 1.34.4 or as 1.34, and not those that the environment names (package
// assets).
func WithKubernetes(version string) Option {
	return func(o *options) { o.kubernetes = version }
}

// find returns the programs that the clusters consist of.
func (o options) find(ctx context.Context) (assets.Binaries, error) {
	if o.kubernetes != "" {
		return assets.FindVersion(ctx, o.kubernetes, o.log)
	}
	return assets.Find(ctx, o.log)
}

// WithSharedPKI gives all clusters of the call the same authorities and keys
// and the same administrator: who can reach one of them can reach any, and
// cannot tell by TLS which one that is.
func WithSharedPKI() Option {
	return func(o *options) { o.sharedPKI = true }
}

// progress returns the default log. While go test runs several packages, it
// shows the output of each only when that has ended; so that nobody takes a
// first build for a hang, the lines go to the terminal too.
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
