// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/informerpool"
)

const (
	// userAgent is the user agent that the API servers see.
	userAgent = "fleetcache-watchset"
	// linger is how long a watch outlives its last entry, so that using it again
	// soon costs nothing (default 30 s).
	linger = 2 * time.Second
	// stopTimeout bounds how long the end waits for the handler.
	stopTimeout = 5 * time.Second
)

// processor watches what its configurations say, and prints each event. What
// your program does with an event takes the place of handle.
type processor struct {
	clusters *clustercache.ClusterCache
	set      *watchset.Set
	out      *story.Printer
}

// newProcessor returns a processor for the clusters of a resolver. It does no
// I/O.
func newProcessor(clusters resolver.Resolver, out *story.Printer, log logr.Logger) (*processor, error) {
	cc, err := clustercache.New(clustercache.Options{
		Resolver:  clusters,
		Logger:    log,
		UserAgent: userAgent,
		Informers: informerpool.Options{Linger: linger},
	})
	if err != nil {
		return nil, err
	}
	p := &processor{clusters: cc, out: out}
	p.set, err = watchset.New(cc, watchset.Options{
		Handle:      p.handle,
		OnStatus:    p.report,
		DeliverLeft: true,
	})
	return p, err
}

// run follows the documents until ctx ends. It returns when the handler is not
// being called any more and everything has stopped.
func (p *processor) run(ctx context.Context, documents <-chan document) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // the clusters outlive the handler
	ended := make(chan error, 1)
	go func() { ended <- p.clusters.Start(running) }()

	for ctx.Err() == nil {
		select {
		case d, ok := <-documents:
			if !ok {
				documents = nil // the last one stays in effect
				continue
			}
			p.replace(ctx, d)
		case <-ctx.Done():
		}
	}
	p.out.Say("stopping")
	bounded, cancel := context.WithTimeout(running, stopTimeout)
	err := p.set.Close(bounded)
	cancel()
	stop()

	return errors.Join(err, <-ended)
}

// replace replaces what is watched, and prints the difference. Nothing changes
// because of an invalid document.
func (p *processor) replace(ctx context.Context, d document) {
	entries, err := map[string]watchset.Entry(nil), d.err
	if err == nil {
		entries, err = watchset.Decode(d.text)
	}
	var change watchset.Change
	if err == nil {
		change, err = p.set.Replace(ctx, entries)
	}
	if err != nil {
		p.out.Say("configuration refused: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}

	unchanged := len(entries) - len(change.Added) - len(change.Changed)
	p.out.Say("configuration: %s%s%s%d unchanged",
		marked("+", change.Added), marked("~", change.Changed), marked("-", change.Removed), unchanged)
}

// marked returns names with a mark before each, for the beginning of a line.
func marked(mark string, names []string) string {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(mark + name + ", ")
	}
	return text.String()
}

// handle prints an event. After an error it would be called again, with the
// newest state of the object.
func (p *processor) handle(_ context.Context, e watchset.Event) error {
	o := e.Object()
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	text := fmt.Sprintf("%s: %s %s in %s %s", e.Entry, e.GVK.Kind, name, e.Cluster.Name, e.Type)
	if e.Left {
		text += " (it left the set)"
	}
	p.out.Say("%s", text)
	return nil
}

// report prints the status of an entry when that has changed.
func (p *processor) report(s watchset.Status) {
	if s.Err != nil {
		p.out.Say("%s is %s: %v", s.Entry, s.State, s.Err)
		return
	}
	p.out.Say("%s is %s", s.Entry, s.State)
}
