// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	seeds  = flag.Int("seeds", 200, "how many seeds are run, and half of them with -short")
	from   = flag.Uint64("from", 1, "the first of them")
	single = flag.Uint64("seed", 0, "one seed alone")
	faults = flag.String("faults", "",
		"families of faults, of which seeds choose (a,b), or that one has together (a+b)")
	paired  = flag.Bool("pairs", false, "each seed has a pair of families, of which one is of -faults if that is set")
	storied = flag.Bool("story", false, "print all that happened")
)

func TestMain(m *testing.M) {
	repeat.CollectRarely()
	goleak.VerifyTestMain(m)
}

// plan returns the families of a seed.
func plan(seed uint64, chosen string) ([]*family, error) {
	all := families()
	var pool []*family
	for _, name := range strings.FieldsFunc(chosen, func(r rune) bool { return r == ',' || r == '+' }) {
		i := slices.IndexFunc(all, func(f *family) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no family %q", name)
		}
		pool = append(pool, all[i])
	}
	if strings.Contains(chosen, "+") || len(pool) == 1 {
		return pool, nil
	}
	if len(pool) == 0 {
		pool = slices.DeleteFunc(all, func(f *family) bool { return f.apart })
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	n := 1 + rng.IntN(3)
	var out []*family
	for range n {
		f := pool[rng.IntN(len(pool))]
		if f.solo != nil {
			return []*family{f}, nil
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// alone are the families beside which there is no other, and why.
var alone = map[string]string{
	"heavy":           "it measures the memory of the process",
	"hung-neighbours": "it measures how long clusters wait that nothing is wrong with, beside hundreds that hang",
	"second-fault":    "it has pairs of faults of its own, and judges what a read may show between them",
}

// unlike are pairs of which nothing can be required. A server that gives versions
// twice, and none to its lists, can come to the version of an object that a cache
// has, with other content: no question and no resume shows that.
var unlike = []string{"unversioned-lists+recounted"}

// couples returns the pairs of families that may strike at once, joined by a
// plus. If some are chosen, each pair has one of them.
func couples(chosen string) (out []string) {
	of := strings.FieldsFunc(chosen, func(r rune) bool { return r == ',' })
	all := slices.DeleteFunc(families(), func(f *family) bool { return alone[f.name] != "" })
	for i, first := range all {
		for _, second := range all[i+1:] {
			if slices.Contains(unlike, first.name+"+"+second.name) {
				continue
			}
			if len(of) == 0 || slices.Contains(of, first.name) || slices.Contains(of, second.name) {
				out = append(out, first.name+"+"+second.name)
			}
		}
	}
	return out
}

// TestFamiliesArePairedUnlessThereIsAReason: a family that has a run of its own
// has no other beside it.
func TestFamiliesArePairedUnlessThereIsAReason(t *testing.T) {
	for _, f := range families() {
		require.Equal(t, f.solo != nil || f.apart, alone[f.name] != "", f.name)
	}
	n := len(families()) - len(alone)
	require.Len(t, couples(""), n*(n-1)/2-len(unlike))
	require.Len(t, couples("repeating,recounted"), 2*(n-1)-1-1)
}

func TestSeeds(t *testing.T) {
	if *single > 0 {
		runSeed(t, *single, *faults)
		return
	}
	measures := slices.ContainsFunc(families(), func(f *family) bool {
		return f.apart && f.name == *faults
	}) // it measures memory
	all := couples(*faults)
	n := *seeds
	if testing.Short() {
		n = (n + 1) / 2
	}
	for i := range n {
		seed, of := *from+uint64(i), *faults
		if *paired {
			of = all[seed%uint64(len(all))]
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if !measures {
				t.Parallel()
			}
			runSeed(t, seed, of)
		})
	}
}

// TestFloods measures memory, alone.
func TestFloods(t *testing.T) {
	for _, f := range families() {
		for seed := range uint64(2) {
			if f.apart {
				t.Run(fmt.Sprintf("%s/%d", f.name, seed+1), func(t *testing.T) { runSeed(t, seed+1, f.name) })
			}
		}
	}
}

func runSeed(t *testing.T, seed uint64, chosen string) {
	t.Helper()
	of, err := plan(seed, chosen)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, of)
		if of[0].solo != nil {
			of[0].solo(w)
		} else {
			w.live()
		}
		switch {
		case w.failed():
			w.keep()
			t.Error(w.report())
		case *storied:
			t.Log(w.report())
		}
	})
}
