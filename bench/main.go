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
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go's lines about outages
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// start runs the program, or a part of it in a process of its own.
func start(ctx context.Context, args []string) error {
	if len(args) == 1 {
		switch args[0] {
		case childArg:
			return child[task](ctx, os.Stdin, os.Stdout)
		case serveArg:
			return serveFleet(os.Stdin, os.Stdout)
		case startArg:
			return child[startTask](ctx, os.Stdin, os.Stdout)
		case watchArg:
			return measure.Main(ctx, os.Stdin, os.Stdout, subjects.Named)
		}
	}
	return parent(ctx, args, os.Stdout)
}

// errMissed indicates that a bound does not hold.
var errMissed = errors.New("bounds missed")

// config is what the flags set.
type config struct {
	plan                    plan
	inJSON, isShort, strict bool
	rows                    []string
	out, docs               string
}

func parse(args []string) (config, error) {
	c := config{plan: full}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&c.inJSON, "json", false, "write one JSON object per row")
	flags.BoolVar(&c.isShort, "short", false, "end within two minutes, with rougher figures")
	flags.BoolVar(&c.strict, "strict", false, "fail if a bound is missed")
	flags.StringVar(&c.plan.profile, "profile", "",
		"existing `directory` for pprof files and goroutine dumps of all measured processes")
	flags.StringVar(&c.plan.only, "subject", "", "measure one `subject` only; ratios are left out")
	flags.StringVar(&c.out, "out", "",
		"`directory` that keeps results and gets the tables: a repeated run continues where the last one ended")
	flags.StringVar(&c.docs, "docs", "",
		"`directory` of the documentation, in which tables and plots are replaced; needs -out")
	rows := flags.String("rows", "",
		"comma-separated `list` of the rows to measure, even if there are results; all that have none by default")
	clusters := flags.Int("fleet", 0, "`number` of clusters of the fleet; 1000 by default, 20 with -short")
	peers := flags.Int("peers", 0,
		"`number` of clusters of the fleet that all subjects watch; 20 by default, 3 with -short")
	flags.IntVar(&c.plan.replicas, "replicas", objects.DefaultReplicas,
		"`number` of Pods that share labels and an owner")
	flags.Uint64Var(&c.plan.seed, "seed", 1, "`seed` of the objects of the fleet")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if c.isShort {
		set := c.plan
		c.plan = short
		c.plan.profile, c.plan.only, c.plan.replicas, c.plan.seed = set.profile, set.only, set.replicas, set.seed
	}
	if *clusters > 0 {
		c.plan.clusters = *clusters
		c.plan.growth = slices.Clone(c.plan.growth)
		c.plan.growth[len(c.plan.growth)-1] = *clusters
	}
	if *peers > 0 {
		c.plan.peerClusters = *peers
	}
	if *rows != "" {
		c.rows = strings.Split(*rows, ",")
	}

	return c, nil
}

// parent runs all measurements and writes the report.
func parent(ctx context.Context, args []string, out io.Writer) (err error) {
	c, err := parse(args)
	if err != nil {
		return err
	}
	s := &site{plan: c.plan}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &report{}
	if c.inJSON {
		r.each = asJSON(out)
	}
	// What was measured is written even if the rest was not.
	results, failed := runSteps(ctx, c.plan.steps(s), journal{dir: c.out, plan: c.plan.String()}, c.rows, r)
	if !c.inJSON {
		if err := r.table(out); err != nil {
			return errors.Join(failed, err)
		}
	}
	if c.out != "" {
		if err := publish(c.out, c.docs, args, c.plan, results); err != nil {
			return errors.Join(failed, err)
		}
	}
	if n := r.broken(); n > 0 && c.strict {
		return errors.Join(failed, fmt.Errorf("%w: %d", errMissed, n))
	}

	return failed
}
