// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

const (
	// serveArg, as the only argument, makes the program serve a fleet until its
	// input ends.
	serveArg = "serve-a-fleet"
	// watchArg, as the only argument, makes the program measure a subject that
	// watches clusters.
	watchArg = "measure-a-subject-of-clusters"
)

// serveFleet is the serving process.
func serveFleet(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o fleetserver.Options
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	f, err := fleetserver.Start(o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, f.Close())
	}
	control := &http.Server{Handler: f.Control()}
	go func() { _ = control.Serve(l) }() // ends below
	if _, err := fmt.Fprintf(out, "http://%s\n", l.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)

	return errors.Join(err, control.Close(), f.Close())
}

// startFleet starts the serving process and returns the URL of its control.
func startFleet(ctx context.Context, o fleetserver.Options) (url string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, serveArg)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := in.Write(append(text, '\n')); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	if url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		return "", nil, errors.Join(err, stop())
	}

	return strings.TrimSpace(url), stop, nil
}

// watching runs a task in a process of its own.
func watching(ctx context.Context, t measure.Task) (measure.Figures, error) {
	path, err := os.Executable()
	args := []string{watchArg}
	if t.Subject == subjects.GitOps {
		path, err = gitops()
		args = nil
	}
	if err != nil {
		return nil, err
	}
	if t.Starved {
		return run(ctx, path, args, t, starve)
	}
	return run(ctx, path, args, t, nil)
}

// watchingFleet runs a task in a process of its own, with a fleet that another
// one serves.
func (p plan) watchingFleet(
	ctx context.Context, clusters, objects int, t measure.Task,
) (f measure.Figures, err error) {
	url, stop, err := startFleet(ctx, fleetserver.Options{
		Clusters: clusters,
		Objects:  objects,
		Replicas: p.replicas,
		Seed:     p.seed,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	t.Control, t.Patience = url, p.patience

	return watching(ctx, t)
}

// fleetOf measures a subject with a fleet of n clusters. Only a fleet that is
// disturbed shows more than memory and goroutines.
func (p plan) fleetOf(ctx context.Context, subject string, n int, disturbed bool) (measure.Figures, error) {
	t := measure.Task{
		Work:    measure.WorkFleet,
		Subject: subject,
		Kinds:   fleetserver.Kinds(),
		Objects: p.fleetObjects,
		Rest:    p.rest,
	}
	if disturbed {
		t.Outages = p.outages
	}
	return p.watchingFleet(ctx, n, p.fleetObjects, t)
}

// fleet measures our ClusterCache with the whole fleet.
func (p plan) fleet(ctx context.Context, r *report) error {
	for _, s := range []string{subjects.Fleetcache, subjects.FleetcacheCollecting} {
		if p.only != "" && p.only != s {
			continue
		}
		f, err := p.fleetOf(ctx, s, p.clusters, true)
		if err != nil {
			return err
		}
		p.fleetRows(r, s, p.clusters, f)
	}
	return nil
}

// fleetBounds are what we hold ourselves to at the size for which they are
// meant; bounds on what one cluster needs are held at any size.
const boundedClusters = 1000

func (p plan) fleetRows(r *report, subject string, n int, f measure.Figures) {
	add := func(what string, value float64, unit string, b *bound, always bool) {
		ours := subject == subjects.Fleetcache || subject == subjects.FleetcacheCollecting
		if !ours || !always && (n != boundedClusters || p.fleetObjects != full.fleetObjects) {
			b = nil
		}
		r.add(fmt.Sprintf("fleet of %d: %s", n, what), subject, value, unit, b)
	}
	each := float64(n)
	add("resident memory", f["rss"]/mib, "MiB", atMost(800), false)
	add("resident memory: peak of the sync", f["sync/peak"]/mib, "MiB", atMost(1050), false)
	add("live heap", f["heap"]/mib, "MiB", nil, false)
	add("live heap and stack per cluster", (f["heap"]+f["stack"])/each/kib, "KiB", nil, false)
	add("goroutines per cluster", math.Round(f["goroutines"]/each*100)/100, "goroutines", atMost(6), true)
	add("connections per cluster", f["connections"]/each, "connections", atMost(1), true)
	add("sync: elapsed", f["sync/elapsed"], "s", nil, false)
	add("sync: processor time per object",
		f["sync/cpu"]/each/float64(p.fleetObjects*len(fleetserver.Kinds()))*1e6, "µs", nil, false)
	add("at rest: share of a core", f["rest/cpu"]*100, "%", atMost(4), false)
	if _, disturbed := f["churn/cpu"]; disturbed {
		add("one change per second and cluster: share of a core", f["churn/cpu"]*100, "%", nil, false)
		add("one change per second and cluster: processor time per change",
			(f["churn/cpu"]-f["rest/cpu"])/f["churn/events"]*1e6, "µs", nil, false)
	}
	events := []string{"restart"}
	for _, o := range p.outages {
		events = append(events, fmt.Sprintf("outage-%s", o))
	}
	for _, e := range append(events, "relist") {
		if _, measured := f[e+"/elapsed"]; !measured {
			continue
		}
		name := eventNames(e)
		requests, elapsed := atMost(1.1), atMost(5)
		if e == "relist" { // nothing resumes
			requests, elapsed = nil, nil
		}
		add(name+": until all is current", f[e+"/elapsed"], "s", elapsed, false)
		add(name+": requests per informer", f[e+"/requests"], "requests", requests, true)
		add(name+": lists per informer", f[e+"/lists"], "lists", nil, false)
		add(name+": history questions per informer", f[e+"/history"], "requests", nil, false)
		add(name+": GETs of kube-system per informer", f[e+"/identity"], "requests", nil, false)
		add(name+": objects sent", f[e+"/objects"], "objects", nil, false)
		add(name+": received", f[e+"/bytes"]/mib, "MiB", nil, false)
		add(name+": handshakes", f[e+"/handshakes"], "handshakes", nil, false)
		add(name+": of them resumed", f[e+"/resumed"], "handshakes", nil, false)
		add(name+": processor time", f[e+"/cpu"], "s", nil, false)
		add(name+": peak of resident memory", f[e+"/peak"]/mib, "MiB", atMost(1050), false)
	}
	add("stop", f["stop/elapsed"], "s", atMost(1), false)
	add("stop: goroutines that remain", f["stop/goroutines"], "goroutines", nil, false)
}

// eventNames returns the name of an event in the table.
func eventNames(event string) string {
	switch length, isOutage := strings.CutPrefix(event, "outage-"); {
	case isOutage:
		return "outage of " + length
	case event == "relist":
		return "histories lost"
	}
	return "servers restart"
}

// peers measures all subjects with a fleet that all can bear.
func (p plan) peers(ctx context.Context, r *report) error {
	for _, s := range p.fleetSubjects() {
		f, err := p.fleetOf(ctx, s, p.peerClusters, !p.light)
		if err != nil {
			if s == subjects.Fleetcache || ctx.Err() != nil {
				return err
			}
			// A peer that does not get there is a result, too.
			r.note(fmt.Sprintf("fleet of %d: resident memory", p.peerClusters), s, err.Error())
			continue
		}
		p.fleetRows(r, s, p.peerClusters, f)
	}
	return nil
}

func (p plan) fleetSubjects() []string {
	if p.only != "" {
		return []string{p.only}
	}
	if p.light {
		return []string{subjects.Fleetcache, subjects.Typed, subjects.ClusterAPI}
	}
	return []string{
		subjects.Fleetcache, subjects.Dynamic, subjects.Unstructured, subjects.Stripped, subjects.Typed,
		subjects.Metadata, subjects.ClusterAPI, subjects.GitOps,
	}
}
