// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart shows the library at work. It starts a hub and two remote clusters
// by itself, runs an operator in the hub that watches ConfigMaps and the
// objects of a custom kind in both remote clusters, and shows what happens when
// objects change, when a cluster dies, when a connection is cut, and when an
// informer loses its last user:
//
//	go run ./examples/quickstart
//
// It checks everything it shows: if something does not happen as it should, it
// reports that, and exits with status 1. The first run builds etcd and
// kube-apiserver, which takes minutes; later ones take about half a minute.
// With -stay it keeps running until it is interrupted, and prints how kubectl
// reaches the clusters. With
//
//	go run ./examples/quickstart -kubeconfig FILE -context A -context B
//
// it shows the same with your own clusters, as far as that is possible without
// changing anything in them.
//
// The files operator.go and reconciler.go are what your own operator needs; the
// rest is the demonstration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit statuses. An interrupt ends -stay in the regular way.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// settings are the values of the command line.
type settings struct {
	kubeconfig string
	contexts   []string
	stay       bool
	verbose    bool
}

// run runs the demonstration that args select, and returns the exit status.
// Nothing is left running.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	log, restore, err := logging(s.verbose, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "quickstart:", err)
		return exitFailed
	}
	defer restore()
	out := newPrinter(stdout)
	if s.kubeconfig != "" {
		err = tellExisting(ctx, s, out, log)
	} else {
		err = tellLocal(ctx, s, out, log)
	}
	unmet, failed := errors.AsType[*unmetError](err)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		out.say("interrupted; everything is stopped")
		return exitInterrupted
	case failed:
		out.say("FAILED")
		_, _ = fmt.Fprintf(stderr, "expected: %s\ngot:      %s\n", unmet.expected, unmet.got)
	default:
		_, _ = fmt.Fprintln(stderr, "quickstart:", err)
	}
	return exitFailed
}

// logging returns the logger of the library and of controller-runtime, which
// would clutter the output and so discards everything unless verbose. client-go
// has its own logger, klog, which writes to os.Stderr; until restore is called
// its output is discarded, too. Panics are written anyway.
func logging(verbose bool, stderr io.Writer) (log logr.Logger, restore func(), err error) {
	if verbose {
		log = logr.FromSlogHandler(slog.NewTextHandler(stderr, nil))
		ctrl.SetLogger(log)
		return log, func() {}, nil
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return log, nil, err
	}
	was := os.Stderr
	os.Stderr = nowhere
	ctrl.SetLogger(logr.Discard())
	return logr.Discard(), func() {
		os.Stderr = was
		_ = nowhere.Close() // the result does not matter
	}, nil
}

// parse reads the command line. If it returns an error, it has already printed
// it.
func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "",
		"use the clusters of this `file` and change nothing in them; needs -context")
	flags.Func("context",
		"a `context` of the kubeconfig; can be repeated. The operator runs in the first one's cluster",
		func(name string) error {
			if name == "" || slices.Contains(s.contexts, name) {
				return errors.New("empty or given twice")
			}
			s.contexts = append(s.contexts, name)
			return nil
		})
	flags.BoolVar(&s.stay, "stay", false, "go on until interrupted")
	flags.BoolVar(&s.verbose, "v", false, "show the logs of the library and of controller-runtime")
	err := flags.Parse(args)
	switch {
	case err != nil:
		return s, err
	case flags.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	case (s.kubeconfig == "") != (len(s.contexts) == 0):
		err = errors.New("-kubeconfig and -context need each other")
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	return s, err
}
