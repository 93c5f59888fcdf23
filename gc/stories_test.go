// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the results of the stories in testdata instead of comparing them")

// TestDecideOwner plays the stories of testdata, in which each look at an owner
// is a line, followed by a line with the decision:
//
//	gone
//	-> 0s suspected for 0s: look in 30s
//
// "declares" is a sign of life; "begins" and "ends" are those of a declaration
// that takes longer. A look is "overtaken" if it began before the last sign of
// life. A rule of dashes begins anew with another owner. After a change of
// behavior, go test ./gc -rewrite writes the decisions.
func TestDecideOwner(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
	_, _, collect := policy{}.judge(ownerFacts{}, gone, 0, epoch)
	require.True(t, collect, "without grace one look decides")
}

func play(t *testing.T, file string) {
	t.Helper()
	answers := map[string]answer{
		"in-use":  alive,
		"unknown": unknown,
		"gone":    gone,
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var out strings.Builder
	f, now := ownerFacts{}, epoch
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "->") {
			continue
		}
		out.WriteString(line)
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
		case "---":
			f, now = ownerFacts{}, epoch
		case "wait":
			d, err := time.ParseDuration(rest)
			require.NoError(t, err)
			now = now.Add(d)
		case "declares":
			f = f.proven()
		case "begins":
			f.pending++
		case "ends":
			f.pending--
		default:
			a, known := answers[word]
			require.True(t, known, line)
			asked := f.proofs
			if rest == "overtaken" {
				asked--
			}
			next, at, collect := testPolicy.judge(f, a, asked, now)
			require.Equal(t, collect, at.IsZero(), line)
			out.WriteString(decision(f, next, now, at, collect))
			f = next
		}
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o600))
	}
	require.Equal(t, string(text), out.String(), file)
}

// decision is the line after a look.
func decision(before, after ownerFacts, now, at time.Time, collect bool) string {
	out := fmt.Sprintf("-> %s", now.Sub(epoch))
	if after.proofs != before.proofs {
		out += fmt.Sprintf(" sign of life %d", after.proofs)
	}
	if after.used > 0 {
		out += fmt.Sprintf(" in use %d×", after.used)
	}
	if after.failed > 0 {
		out += fmt.Sprintf(" unknown %d×", after.failed)
	}
	if after.pending > 0 {
		out += " declaring"
	}
	if !after.goneSince.IsZero() {
		out += fmt.Sprintf(" suspected for %s", now.Sub(after.goneSince))
	}
	if collect {
		return out + ": collect\n"
	}
	return out + fmt.Sprintf(": look in %s\n", at.Sub(now))
}
