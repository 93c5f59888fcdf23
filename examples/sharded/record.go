// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// gain is that a replica became the owner of a cluster.
type gain struct {
	at      time.Time
	cluster string
	replica string
	token   int64
}

// drain is how long a replica took to hand over its clusters.
type drain struct{ begin, end time.Time }

// record is what the replicas have reported. It is safe for concurrent use.
type record struct {
	clusters map[int]string // by slot

	mu struct {
		sync.Mutex

		changed chan struct{} // closed by the next report
		gains   []gain
		owners  map[string]gain            // by cluster; the last gain, unless it was lost
		warm    map[string]map[string]bool // replicas with warm caches, by cluster
		drains  map[string]drain           // by replica; the last
		reads   map[string][]reading       // by replica; the last
		refused map[string]int             // by replica
	}
}

func newRecord(clusters map[int]string) *record {
	r := &record{clusters: clusters}
	r.mu.changed = make(chan struct{})
	r.mu.owners = map[string]gain{}
	r.mu.warm = map[string]map[string]bool{}
	for _, c := range clusters {
		r.mu.warm[c] = map[string]bool{}
	}
	r.mu.drains = map[string]drain{}
	r.mu.reads = map[string][]reading{}
	r.mu.refused = map[string]int{}
	return r
}

// add adds a report of a replica.
func (r *record) add(replica string, heard report) {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch cluster, mine := r.clusters[heard.Slot]; {
	case heard.Event == read:
		r.mu.reads[replica] = heard.Read
	case heard.Event == refused:
		r.mu.refused[replica]++
	case mine:
		r.changeLocked(replica, cluster, heard)
	}
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// changeLocked adds what has happened to a slot with a cluster.
func (r *record) changeLocked(replica, cluster string, heard report) {
	switch heard.Event {
	case "Warm", "Cool":
		r.mu.warm[cluster][replica] = heard.Event == "Warm"
	case "Gained":
		g := gain{heard.Time, cluster, replica, heard.Token}
		r.mu.gains = append(r.mu.gains, g)
		// Reports of two replicas may arrive in another order.
		if g.token > r.mu.owners[cluster].token {
			r.mu.owners[cluster] = g
		}
	case "Draining":
		if d := r.mu.drains[replica]; d.begin.IsZero() || !d.end.IsZero() {
			r.mu.drains[replica] = drain{begin: heard.Time}
		}
	case "Lost":
		if d := r.mu.drains[replica]; !d.begin.IsZero() {
			d.end = heard.Time
			r.mu.drains[replica] = d
		}
		if r.mu.owners[cluster].replica == replica {
			delete(r.mu.owners, cluster)
		}
	}
}

// gone notes that the caches of a replica are gone, which it cannot report.
// That it is no owner any more is not for it to say: another one has to be.
func (r *record) gone(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, replicas := range r.mu.warm {
		delete(replicas, replica)
	}
	delete(r.mu.reads, replica)
}

// next returns a channel that is closed by the next report.
func (r *record) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.changed
}

// owners returns the owner of each cluster that has one.
func (r *record) owners() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	owners := map[string]string{}
	for cluster, g := range r.mu.owners {
		owners[cluster] = g.replica
	}
	return owners
}

// gains returns all changes of owners so far.
func (r *record) gains() []gain {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.gains)
}

// drained returns how long the last drain of a replica took.
func (r *record) drained(replica string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.mu.drains[replica]
	return d.end.Sub(d.begin)
}

// refusals returns how many writes of a replica were not sent.
func (r *record) refusals(replica string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.refused[replica]
}

// reads returns what the caches of the replicas contain, the newest where
// several replicas have a cluster.
func (r *record) reads() map[widget]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := map[widget]int64{}
	for _, readings := range r.mu.reads {
		for _, x := range readings {
			w := widget{x.Cluster, x.Widget}
			newest[w] = max(newest[w], x.Generation)
		}
	}
	return newest
}

// table returns which replica has which cluster.
func (r *record) table() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := [][]string{{"CLUSTER", "OWNER", "TOKEN", "STANDBYS"}}
	for _, cluster := range slices.Sorted(maps.Values(r.clusters)) {
		owner := r.mu.owners[cluster]
		var standbys []string
		for replica, warm := range r.mu.warm[cluster] {
			if warm && replica != owner.replica {
				standbys = append(standbys, replica)
			}
		}
		slices.Sort(standbys)
		row := []string{cluster, "-", "-", strings.Join(standbys, " ")}
		if owner.replica != "" {
			row[1], row[2] = owner.replica, fmt.Sprint(owner.token)
		}
		rows = append(rows, row)
	}
	return rows
}
