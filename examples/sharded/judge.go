// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// widget names a widget of a cluster.
type widget struct{ cluster, name string }

// write is a write of a replica that has reached a cluster.
type write struct {
	at      time.Time
	replica string
	widget  widget
}

// writes returns what the replicas have written to a cluster, by the audit log
// of its API server, whatever became of it.
func writes(cluster fleet.Cluster) ([]write, error) {
	requests, err := cluster.Requests(testenv.UserAgent("replica-"), func(r testenv.Request) bool {
		return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
	})
	if err != nil {
		return nil, err
	}
	var all []write
	for _, r := range requests {
		name, _, _ := strings.Cut(r.UserAgent, "/")
		all = append(all, write{
			at:      r.Time,
			replica: name,
			widget:  widget{cluster.Name(), r.Name},
		})
	}
	return all, nil
}

// between returns the writes that have arrived in a time.
func between(all []write, begin, end time.Time) []write {
	var some []write
	for _, w := range all {
		if !w.at.Before(begin) && w.at.Before(end) {
			some = append(some, w)
		}
	}
	return some
}

// intruders returns the writes of a replica that have arrived after another one
// took over, and before it was the owner again. A replica reports a gain before
// it acts on it, and all clocks are those of this machine.
func intruders(all []write, gains []gain) []write {
	var found []write
	for _, w := range all {
		var owner gain
		for _, g := range gains {
			if g.cluster == w.widget.cluster && !g.at.After(w.at) && g.token > owner.token {
				owner = g
			}
		}
		if owner.replica != w.replica {
			found = append(found, w)
		}
	}
	return found
}

// once returns an error unless each of the widgets was written exactly once.
func once(all []write, widgets []widget) error {
	times := map[widget][]string{}
	for _, w := range all {
		times[w.widget] = append(times[w.widget], w.replica)
	}
	for _, w := range widgets {
		if by := times[w]; len(by) != 1 {
			return fmt.Errorf("widget %s of %s was written %d times, by %v", w.name, w.cluster, len(by), by)
		}
	}
	return nil
}

// moved returns how many clusters have another owner than before.
func moved(before, after map[string]string) int {
	n := 0
	for cluster, owner := range before {
		if after[cluster] != owner {
			n++
		}
	}
	return n
}
