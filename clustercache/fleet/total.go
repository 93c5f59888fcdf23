// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Total counts what a read has yielded so far. Pass it as an option: the read
// sets it when an iteration begins, and brings it up to date before each call
// of the loop's body. It must not be used by two iterations at once.
type Total struct {
	// Clusters is the number of clusters that are to be read. A cluster counts
	// once: those that are neither Answered nor Failed have yet to be read.
	Clusters int
	// Answered counts the clusters that were read, and Cached those of them
	// that the cache answered for.
	Answered, Cached int
	// Failed counts the clusters that could not be read, and Reasons has their
	// number by the cause ([clustercache.ReasonOf]).
	Failed  int
	Reasons map[string]int
	// Objects counts the objects of the clusters that were read.
	Objects int
	// OldestSeen is the last sign of life of the least recently active informer
	// that answered, and Oldest its cluster. Zero if the cache answered for no
	// cluster.
	OldestSeen time.Time
	Oldest     client.ObjectKey
	// Unlisted is why there may be clusters that are not counted: the
	// ClusterCache does not know its clusters yet, has ended, or knows none and
	// is not to discover any. Nil if Options.Clusters names them.
	Unlisted error
}

// Complete reports whether every cluster was read.
func (t *Total) Complete() bool { return t.Unlisted == nil && t.Answered == t.Clusters }

// String returns how many clusters were read, and the greatest age of an answer
// now, for people: 997 of 1000 clusters, oldest 12s.
func (t *Total) String() string {
	text := fmt.Sprintf("%d of %d clusters", t.Answered, t.Clusters)
	if t.Unlisted != nil {
		text = fmt.Sprintf("%d of at least %d clusters", t.Answered, t.Clusters)
	}
	if !t.OldestSeen.IsZero() {
		text += fmt.Sprintf(", oldest %s", time.Since(t.OldestSeen).Round(time.Second))
	}
	return text
}

// ApplyToList implements client.ListOption. It has no effect on other lists.
func (*Total) ApplyToList(*client.ListOptions) {}

// count adds the result of one cluster.
func (t *Total) count(of result) {
	if of.err != nil {
		if t.Reasons == nil {
			t.Reasons = map[string]int{}
		}
		t.Failed++
		t.Reasons[clustercache.ReasonOf(of.err)]++
		return
	}

	t.Answered++
	t.Objects += len(of.objects)
	if !of.origin.Cached {
		return
	}
	t.Cached++
	if t.OldestSeen.IsZero() || of.origin.LastSeen.Before(t.OldestSeen) {
		t.OldestSeen, t.Oldest = of.origin.LastSeen, of.key
	}
}
