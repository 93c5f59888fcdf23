// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/bench/measure"
)

// childArg, as the only argument, makes the program measure a single subject,
// so that it begins with an empty heap.
const childArg = "measure-one-subject"

// task describes what a child process measures.
type task struct {
	Work    string
	Subject string
	Cluster measure.Cluster
	// Count is the number of objects, or the number of informers on each of
	// Connections.
	Count       int
	Connections int
	// Wait makes idle informers wait for a bookmark.
	Wait bool
	// Rounds is how many times each read is measured, for RoundTime each.
	Rounds    int
	RoundTime string
	// Profile is a directory for pprof files, or empty.
	Profile string
}

// clusterOf returns the access to the real cluster.
func clusterOf(config *rest.Config) measure.Cluster {
	return measure.Cluster{
		Name: "real",
		Host: config.Host,
		CA:   config.CAData,
		Cert: config.CertData,
		Key:  config.KeyData,
	}
}

// works are the measurements that need a process of their own.
var works = map[string]func(context.Context, task) (measure.Figures, error){
	"idle": idle,
	"sync": initialSync,
	"peak": peak,
	"read": read,
}

// childTimeout bounds one measurement.
const childTimeout = 5 * time.Minute

// inChild runs the task in a new process.
func (t task) inChild(ctx context.Context) (measure.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	f, err := inChild(ctx, childArg, t)
	if err != nil {
		return nil, fmt.Errorf("measure %s of %s: %w", t.Work, t.Subject, err)
	}
	return f, nil
}

// run runs the task in this process.
func (t task) run(ctx context.Context) (measure.Figures, error) {
	if t.Profile != "" && t.Work == "idle" {
		runtime.MemProfileRate = 1 // samples every allocation
	}
	work, ok := works[t.Work]
	if !ok {
		return nil, fmt.Errorf("no work %q", t.Work)
	}
	return work(ctx, t)
}

// inChild runs this program with one argument, which makes it read a task and
// write figures.
func inChild(ctx context.Context, arg string, task any) (measure.Figures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return run(ctx, self, []string{arg}, task, nil)
}

// run runs a program that reads a task, and returns the figures that it writes.
// beside, if it is not nil, is called meanwhile; it ends with its context.
func run(
	ctx context.Context, path string, args []string, task any, beside func(context.Context, *os.Process) error,
) (f measure.Figures, err error) {
	in, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	aside, end := context.WithCancel(ctx)
	var g errgroup.Group
	if beside != nil {
		g.Go(func() error { return beside(aside, cmd.Process) })
	}
	err = cmd.Wait()
	end()
	if err := errors.Join(err, g.Wait()); err != nil {
		return nil, err
	}
	err = json.Unmarshal(out.Bytes(), &f)
	return f, err
}

// child is the child's side of inChild.
func child[T interface {
	run(ctx context.Context) (measure.Figures, error)
}](ctx context.Context, in io.Reader, out io.Writer) error {
	var task T
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		return err
	}
	f, err := task.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}
