// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/clustercache"
)

func soloFamilies() []*family {
	return []*family{
		{name: "hung-neighbours", solo: hungNeighbours},
		{name: "heavy", apart: true, solo: heavy},
	}
}

// leftBehind is another cluster that is read, not watched, and then removed:
// nothing of it may remain.
func leftBehind(w *world, _ *site) func() {
	s := w.add(fmt.Sprint("left-", len(w.sites)))
	w.pause(time.Second)
	for range 1 + w.rng.IntN(3) {
		_, _ = w.list(s, selection{kind: configMaps}, asTyped, clustercache.AutoWatch)
		w.shortPause(10 * time.Second)
	}
	w.mu.Lock()
	s.removed = true
	w.mu.Unlock()
	w.names.Remove(s.key)
	if w.chance(2) {
		s.net.Mute()
	}
	w.pause(2 * time.Minute)
	if slices.Contains(w.cc.Clusters(), s.key) {
		w.fail("a cluster that was removed two minutes ago, and that nobody watches, is known")
	}
	if status, err := w.cc.Cluster(s.key).Status(); err == nil {
		w.fail("a cluster that was removed two minutes ago has a status: %s", status.Phase)
	}
	return nil
}

// heavy is a cluster whose objects are large in places whose memory might not
// be counted. The memory in use must roughly match the reported size, and that
// must be within the budget.
func heavy(w *world) {
	const budget = 1 << 20
	w.families[0].options = func(_ *world, o *clustercache.Options) { o.Informers.MaxClusterBytes = budget }
	const slack = 4 << 20 // for connections, and for the test itself
	s := w.add("one")
	b, owners := s.current(), w.seed%2 == 0
	for i := range 30 {
		u := configMaps.object("a", fmt.Sprintf("heavy-%d", i), "gold", "")
		if owners {
			refs := make([]any, 0, 1000)
			for j := range 1000 {
				refs = append(refs, map[string]any{"apiVersion": "v1", "kind": "Pod",
					"name": fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 150)), "uid": fmt.Sprintf("%d-%d", i, j)})
			}
			w.must(unstructured.SetNestedSlice(u.Object, refs, "metadata", "ownerReferences"))
		} else {
			labels := map[string]string{}
			for j := range 2500 {
				labels[fmt.Sprintf("l-%d-%d", i, j)] = strings.Repeat("y", 62)
			}
			u.SetLabels(labels)
		}
		w.must(b.store(u))
	}
	before := heap()
	w.run()
	w.follow(s, selection{kind: configMaps})
	w.pause(2 * time.Minute)
	used := int64(heap()) - int64(before)
	status, err := w.cc.Cluster(s.key).Status()
	w.must(err)
	w.trace("used %d, says %d", used, status.Bytes)
	if used > 3*status.Bytes+slack {
		w.fail("%d bytes are used, and %d are said to be", used, status.Bytes)
	}
	if used > 3*budget+slack {
		w.fail("%d bytes are used of a budget of %d", used, budget)
	}
	w.subjects = nil // objects beyond the budget are not delivered
	w.finish()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
