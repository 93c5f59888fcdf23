// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

// kept is the file of seeds that failed once. A line has a seed, its families,
// and the first violation.
const kept = "testdata/seeds"

// TestKeptSeeds runs the seeds that failed once, before all others; with -short,
// a fifth of them.
func TestKeptSeeds(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(kept, "*"))
	if err != nil {
		t.Fatal(err)
	}
	all, each := 0, 5/repeat.Times(5)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var seed uint64
			var of string
			if n, _ := fmt.Sscan(lines.Text(), &seed, &of); n < 2 {
				t.Errorf("%s: not a seed and its families: %q", name, lines.Text())
				continue
			}
			if all++; all%each != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", seed, of), func(t *testing.T) {
				t.Parallel()
				runSeed(t, seed, of)
			})
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
}

// keep writes the seed to the file, so that every later run begins with it. If
// the file cannot be written, the report is all there is.
func (w *world) keep() {
	names := w.familyNames()
	line, _, _ := strings.Cut(w.failures[0], "\n")
	name := filepath.Join(kept, fmt.Sprintf("%d-%s.txt", w.seed, strings.Join(names, "-")))
	if err := os.WriteFile(name, fmt.Appendf(nil, "%d %s %.300s\n", w.seed, strings.Join(names, "+"), line),
		0o600); err != nil {
		w.t.Logf("the seed is not kept: %v", err)
	}
}

func (w *world) familyNames() []string {
	var names []string
	for _, f := range w.families {
		names = append(names, f.name)
	}
	return names
}
