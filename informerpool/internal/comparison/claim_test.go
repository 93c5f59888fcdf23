// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"iter"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// TestClaimIsProvenByWhatTheListShows: the kept state has a, of uid u at
// version 1; the list is at version 10.
func TestClaimIsProvenByWhatTheListShows(t *testing.T) {
	type change struct {
		name    string
		version uint64
		gone    bool
	}
	for name, row := range map[string]struct {
		listed map[string]string // uid@version
		then   []change
		owed   []int // after the list, and after each change
	}{
		"equal":                 {listed: map[string]string{"a": "u@1"}, owed: []int{0}},
		"deleted":               {then: []change{{"a", 5, true}}, owed: []int{1, 0}},
		"deleted, unversioned":  {then: []change{{"a", 1, true}}, owed: []int{1, 0}},
		"of another uid":        {listed: map[string]string{"a": "v@1"}, owed: []int{1}},
		"deleted after a write": {then: []change{{"a", 4, false}, {"a", 5, true}}, owed: []int{1, 1, 0}},
		"written twice": {
			listed: map[string]string{"a": "u@5"},
			then:   []change{{"a", 4, false}, {"a", 5, false}}, owed: []int{1, 1, 0},
		},
		"created anew": {
			listed: map[string]string{"a": "v@5"},
			then:   []change{{"a", 4, true}, {"a", 5, false}}, owed: []int{1, 1, 0},
		},
		"created": {
			listed: map[string]string{"a": "u@1", "b": "v@5"},
			then:   []change{{"b", 5, false}}, owed: []int{1, 0},
		},
		"created and deleted before it is proven": {
			listed: map[string]string{"a": "u@6"},
			then:   []change{{"b", 4, false}, {"a", 6, false}, {"b", 7, true}}, owed: []int{1, 2, 1, 0},
		},
		"changed after the list": {
			listed: map[string]string{"a": "u@6"},
			then:   []change{{"b", 11, false}, {"a", 12, true}}, owed: []int{1, 1, 0},
		},
		"not the listed version": {
			listed: map[string]string{"a": "u@6"},
			then:   []change{{"a", 8, false}}, owed: []int{1, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := pack(t)
			all := iter.Seq[*packed.Object](func(yield func(*packed.Object) bool) { yield(a) })
			c := NewClaim(func(_, name string) *packed.Object {
				if name == "a" {
					return a
				}
				return nil
			})
			for name, state := range row.listed {
				it := wire.Item{Namespace: "ns", Name: name}
				it.UID, it.ResourceVersion = state[:1], state[2:]
				c.Compare(it)
			}
			c.End(10, all)
			owed := []int{c.Owed()}
			for _, change := range row.then {
				at := types.NamespacedName{Namespace: "ns", Name: change.name}
				c.Brought(at, change.version, strconv.FormatUint(change.version, 10), change.gone)
				owed = append(owed, c.Owed())
			}
			require.Equal(t, row.owed, owed)
			require.Equal(t, c.Owed() == 0, c.Proven())
		})
	}
}
