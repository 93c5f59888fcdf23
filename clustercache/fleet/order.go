// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"iter"
	"slices"

	"github.com/fleetcache/fleetcache/informerpool"
)

// inOrder sorts results and the objects of each. It holds a result back until
// all before it have been yielded.
func inOrder(all iter.Seq[result]) iter.Seq[result] {
	return func(yield func(result) bool) {
		held, next := map[int]result{}, 0
		for of := range all {
			slices.SortFunc(of.objects, compareNames)
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

func compareNames(a, b *informerpool.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
