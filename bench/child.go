// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"k8s.io/client-go/rest"
)

// childArg, as the only argument, makes the program measure a single subject,
// so that it begins with an empty heap.
const childArg = "measure-one-subject"

// task describes what a child process measures.
type task struct {
	Work    string
	Subject string
	Server  server
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

// server holds the data needed to connect to the cluster.
type server struct {
	Host          string
	CA, Cert, Key []byte
}

func serverOf(config *rest.Config) server {
	return server{
		Host: config.Host,
		CA:   config.CAData,
		Cert: config.CertData,
		Key:  config.KeyData,
	}
}

func (s server) config() *rest.Config {
	return &rest.Config{
		Host: s.Host, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.CA, CertData: s.Cert, KeyData: s.Key},
	}
}

// figures are a child's measurements, by name.
type figures map[string]float64

// works are the measurements that need a process of their own.
var works = map[string]func(context.Context, task) (figures, error){
	"idle": idle,
	"sync": initialSync,
	"peak": peak,
	"read": read,
}

// childTimeout bounds one measurement.
const childTimeout = 5 * time.Minute

// inChild runs a task in a new process.
func inChild(ctx context.Context, t task) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var f figures
	if err := run(ctx, self, []string{childArg}, in, &f); err != nil {
		return nil, fmt.Errorf("measure %s of %s: %w", t.Work, t.Subject, err)
	}
	return f, nil
}

// run runs a program and decodes what it writes.
func run(ctx context.Context, path string, args []string, in []byte, result any) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	return json.Unmarshal(out.Bytes(), result)
}

// child is the child's side of inChild.
func child(ctx context.Context, in io.Reader, out io.Writer) error {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return err
	}
	if t.Profile != "" && t.Work == "idle" {
		runtime.MemProfileRate = 1 // samples every allocation
	}
	work, ok := works[t.Work]
	if !ok {
		return fmt.Errorf("no work %q", t.Work)
	}
	f, err := work(ctx, t)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}
