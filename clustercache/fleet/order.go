// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"iter"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// inOrder sorts results and the objects of each. It holds a result back until
// all before it have been yielded.
func inOrder(all iter.Seq[result]) iter.Seq[result] {
	return func(yield func(result) bool) {
		held, next := map[int]result{}, 0
		for of := range all {
			sortByName(of.objects)
			held[of.at] = of
			for {
				of, ok := held[next]
				if !ok {
					break
				}
				delete(held, next)
				next++
				if !yield(of) {
					return
				}
			}
		}
	}
}

// sortByName sorts objects by namespace and name, which it reads once of each.
func sortByName(objects []*informerpool.Object) {
	type named struct {
		key    client.ObjectKey
		object *informerpool.Object
	}
	all := make([]named, len(objects))
	for i, o := range objects {
		all[i] = named{client.ObjectKeyFromObject(o), o}
	}
	slices.SortFunc(all, func(a, b named) int { return clustername.Compare(a.key, b.key) })
	for i := range all {
		objects[i] = all[i].object
	}
}
