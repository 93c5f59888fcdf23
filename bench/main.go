// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command bench compares fleetcache with the informers of client-go and
// controller-runtime, on a real API server. See README.md for the meaning of
// the rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard())
	var err error
	if len(os.Args) == 2 && os.Args[1] == childArg {
		err = child(ctx, os.Stdin, os.Stdout)
	} else {
		err = parent(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errMissed indicates that a bound does not hold.
var errMissed = errors.New("bounds missed")

// parent starts a cluster, fills it, runs all measurements and writes the
// report.
func parent(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	inJSON := flags.Bool("json", false, "write one JSON object per row")
	isShort := flags.Bool("short", false, "end within two minutes, with rougher figures")
	strict := flags.Bool("strict", false, "fail if a bound is missed")
	profile := flags.String("profile", "",
		"existing `directory` for pprof files and goroutine dumps of all measured processes")
	only := flags.String("subject", "", "measure one `subject` only; ratios are left out")
	works := flags.String("work", "", "comma-separated `list` of idle, sync, peak and read; all by default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := full
	if *isShort {
		p = short
	}
	p.profile, p.only = *profile, *only
	if *works != "" {
		p.works = strings.Split(*works, ",")
	}
	r := &report{}
	if *inJSON {
		r.each = asJSON(out)
	}
	if err := p.onCluster(ctx, r); err != nil {
		return err
	}
	if !*inJSON {
		if err := r.table(out); err != nil {
			return err
		}
	}
	if n := r.broken(); n > 0 && *strict {
		return fmt.Errorf("%w: %d", errMissed, n)
	}
	return nil
}

// onCluster runs the plan on a cluster of its own.
func (p plan) onCluster(ctx context.Context, r *report) (err error) {
	env, err := testenv.Run(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	config := env.Clusters[0].Config()
	if p.does("idle") {
		for _, s := range p.subjects() {
			if err := makeNamespaces(ctx, config, idleNamespaces(s, p.informers)); err != nil {
				return err
			}
		}
	}

	if p.does("sync") || p.does("peak") || p.does("read") {
		began := time.Now()
		if err := load(ctx, config, p.pods); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "bench: %d pods written in %s\n", p.pods, time.Since(began).Round(time.Second))
		whole, stripped, err := sizes(ctx, config)
		if err != nil {
			return err
		}
		r.add("pod in JSON", "whole", whole/kib, "KiB", nil)
		r.add("pod in JSON", "without managedFields", stripped/kib, "KiB", nil)
	}

	return p.run(ctx, serverOf(config), r)
}
