// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Watchset watches, outside of any cluster and without a manager, what a stream
// of configurations says: which kinds, namespaces and selectors in which
// clusters. Each configuration replaces the one before it, and only the
// difference starts and stops:
//
//	go run ./examples/watchset -kubeconfig FILE -entries FILE
//	generator | go run ./examples/watchset -kubeconfig FILE -entries -
//
// Every context of the kubeconfig files is a cluster of that name, and the
// entries are what watchset.Decode reads. SIGTERM ends the program with status
// 0, after the call of the handler that is under way.
//
// Without -kubeconfig it shows that: it starts two control planes, runs itself
// as a second process that receives configurations, and counts in the audit
// logs of the API servers which WATCH requests each of them costs. The first run
// builds the servers, which takes minutes; later ones take seconds. With
// -embedded they are API servers in memory: nothing is built, the second process
// reaches them all the same, and what they cannot show is printed.
//
// The files processor.go and documents.go are what your own program needs.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

func main() { program().Main() }

// settings are the values of the command line.
type settings struct {
	kubeconfigs []string
	entries     string
	plugins     []string
	local       fleet.Local
}

func program() story.Program {
	var s settings
	return story.Program{
		Name: "watchset",
		Flags: func(flags *flag.FlagSet) {
			flags.Func("kubeconfig", "a kubeconfig `file`, or a pattern of files; can be repeated", add(&s.kubeconfigs))
			flags.StringVar(&s.entries, "entries", "",
				"the `file` with what to watch, or - for documents on standard input, each ended by a line ---")
			s.local.Flags(flags)
			flags.Func("plugin", "a `command` that may run for credentials; can be repeated", add(&s.plugins))
		},
		Check: func() error {
			if (len(s.kubeconfigs) == 0) != (s.entries == "") {
				return errors.New("-kubeconfig and -entries need each other")
			}
			if s.local.Embedded && s.entries != "" {
				return errors.New("-embedded cannot be combined with -kubeconfig")
			}
			return nil
		},
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			if s.entries == "" {
				return tell(ctx, s.local, out)
			}
			return s.process(ctx, os.Stdin, out, log)
		},
	}
}

// add returns the function of a flag that can be repeated.
func add(to *[]string) func(string) error {
	return func(value string) error {
		*to = append(*to, value)
		return nil
	}
}

// process runs a processor until ctx ends.
func (s settings) process(ctx context.Context, stdin io.Reader, out *story.Printer, log logr.Logger) error {
	clusters, err := resolver.Files(resolver.FileOptions{
		Allow:  resolver.Allow{Exec: s.plugins},
		ID:     func(_, context string) (resolver.Cluster, bool) { return resolver.Cluster{Name: context}, true },
		Logger: log,
	}, s.kubeconfigs...)
	if err != nil {
		return err
	}
	p, err := newProcessor(clusters, out, log)
	if err != nil {
		return err
	}
	if s.entries == "-" {
		return p.run(ctx, fromStream(ctx, stdin))
	}
	return p.run(ctx, fromFile(ctx, s.entries))
}
