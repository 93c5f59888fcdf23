// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Command versions runs suites of tests on real API servers with every version
// of Kubernetes that upstream supports, and with upgrades between versions:
//
//	go run ./internal/testenv/versions
//	go run ./internal/testenv/versions 1.33 1.34
//	go run ./internal/testenv/versions upgrades
//
// The versions are those of the modules in internal/testenv/binaries; missing
// programs are built first. On two cores it takes some seven minutes per
// version, and five for the upgrades. It ends with a table, and with an error
// if a test failed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

const upgrades = "upgrades"

// suite is a package and those of its tests that need a real server.
type suite struct {
	pkg, run string
	tags     string
}

var suites = []suite{
	{pkg: "./test/clusterapi", run: "^TestReal"},
	{pkg: "./test/connecting", run: "^TestReal"},
	{pkg: "./test/declaring", run: "^TestReal"},
	{pkg: "./test/pool", run: "^TestOnRealClusters$"},
	{pkg: "./clustercache/multicluster", run: "^TestReal"},
	{pkg: "./test/hubs", run: "^TestReal"},
	{pkg: "./test/conformance"},
	{pkg: "./test/scenarios", run: "^Test(ReadersOnDemand|RemoteAssemblies|Controllers|Declarations)$"},
	{pkg: "./test/e2e"},
	{pkg: "./examples/quickstart"},
	{pkg: "./examples/adopt/after"},
	{pkg: "./examples/migrating"},
	{pkg: "./examples/readme"},
}

var chains = []suite{{pkg: "./test/e2e", run: "^Test(Upgrades|SkewedPairs|BusyServer|SwitchedBackend)$",
	tags: "upgrades"}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := versions(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func versions(ctx context.Context, what []string) error {
	if len(what) == 0 {
		all, err := assets.Versions()
		if err != nil {
			return err
		}
		what = append(all, upgrades)
	}

	var table []string
	var failed bool
	for _, version := range what {
		run := suites
		if version == upgrades {
			run = chains
		} else if _, err := assets.FindVersion(ctx, version,
			func(line string) { fmt.Fprintln(os.Stderr, line) }); err != nil {
			return err
		}
		for _, s := range run {
			r := s.test(ctx, version)
			table = append(table, fmt.Sprintf("%-9s %s", version, r))
			fmt.Println(table[len(table)-1])
			failed = failed || !r.ok
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}

	fmt.Println()
	for _, line := range table {
		fmt.Println(line)
	}
	if failed {
		return errors.New("tests failed")
	}
	return nil
}

// result is the result of the tests of a package.
type result struct {
	pkg    string
	ok     bool
	passed int
	failed []string
	took   time.Duration
}

// String implements fmt.Stringer.
func (r result) String() string {
	verdict := "ok  "
	if !r.ok {
		verdict = "FAIL"
	}
	return fmt.Sprintf("%s %-32s %3d passed, %d failed %s in %s", verdict, r.pkg, r.passed, len(r.failed), r.failed,
		r.took.Round(time.Second))
}

// test runs a suite with servers of a version.
func (s suite) test(ctx context.Context, version string) result {
	began := time.Now()
	args := []string{"test", "-json", "-count=1", "-timeout=30m"}
	if s.run != "" {
		args = append(args, "-run", s.run)
	}
	if s.tags != "" {
		args = append(args, "-tags", s.tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, s.pkg)...)
	cmd.Env = os.Environ()
	if version != upgrades {
		cmd.Env = append(cmd.Env, "FLEETCACHE_KUBERNETES="+version)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	r := result{pkg: s.pkg}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		r.count(bufio.NewScanner(out))
		err = cmd.Wait()
	}
	r.ok, r.took = err == nil && r.passed > 0, time.Since(began)

	return r
}

// count reads the output of go test and prints that of failed tests.
func (r *result) count(lines *bufio.Scanner) {
	lines.Buffer(nil, 16<<20)
	said := map[string][]string{}
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Action == "output":
			said[e.Test] = append(said[e.Test], e.Output)
		case e.Action == "pass" && e.Test != "":
			r.passed++
			delete(said, e.Test)
		case e.Action == "fail":
			if e.Test != "" {
				r.failed = append(r.failed, e.Test)
			}
			for _, line := range said[e.Test][max(0, len(said[e.Test])-200):] {
				fmt.Fprint(os.Stderr, line)
			}
		}
	}

	slices.Sort(r.failed)
}
