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

	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	seeds  = flag.Int("seeds", 500, "how many seeds are run, and a fifth of them with -short")
	from   = flag.Uint64("from", 1, "the first of them")
	single = flag.Uint64("seed", 0, "one seed alone")
	faults = flag.String("faults", "",
		"families of faults, of which seeds choose (a,b), or that one has together (a+b)")
	storied = flag.Bool("story", false, "print all that happened")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestSeeds(t *testing.T) {
	if *single > 0 {
		runSeed(t, *single, *faults)
		return
	}
	alone := slices.ContainsFunc(families(), func(f *family) bool {
		return f.apart && f.name == *faults
	}) // it measures memory
	for i := range repeat.Times(*seeds) {
		seed := *from + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if !alone {
				t.Parallel()
			}
			runSeed(t, seed, *faults)
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
