// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module whose packages end in each way that a package can.
var module = map[string]string{
	"go.mod":    "module example.com/m\n\ngo 1.26\n",
	"none/n.go": "package none\n",
	"broken/broken_test.go": `package broken
import "testing"
func TestBroken(t *testing.T) { undefined() }
`,
	"passes/passes_test.go": `package passes
import ("fmt"; "testing")
func TestPasses(t *testing.T) { t.Log("a log of a passing test"); fmt.Println("on stdout") }
func TestSkipped(t *testing.T) { t.Skip("why not") }
`,
	"fails/fails_test.go": `package fails
import ("fmt"; "os"; "testing")
func TestPasses(t *testing.T) {
	t.Log("a log of a passing test\nand its second line")
	fmt.Fprintln(os.Stderr, "WARNING: DATA RACE\n  main.f()\n      /f.go:1 +0x1")
}
func TestFails(t *testing.T) {
	t.Log("a log of a failing test")
	t.Run("well", func(t *testing.T) { t.Parallel(); t.Log("of the subtest that passed") })
	t.Run("badly", func(t *testing.T) {
		t.Parallel()
		fmt.Println("on stdout")
		t.Error("of the\nsubtest that failed")
	})
}
`,
	"panics/panics_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { t.Log("before the panic"); panic("it broke") }
`,
}

func TestOutputHasEachLineOfGoTest(t *testing.T) {
	dir := t.TempDir()
	for path, content := range module {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	plain := goTest(t, dir)
	events := goTest(t, dir, "-json")

	var out bytes.Buffer
	l := newLog(&out)
	require.NoError(t, l.read(bytes.NewReader(events)))
	l.close(3)

	require.True(t, l.failed())
	printed := out.String()
	has := lines(printed)
	for _, line := range lines(string(plain)) {
		require.Contains(t, has, line, "of what go test prints:\n%s", plain)
	}
	require.NotContains(t, printed, "a log of a passing test")
	require.NotContains(t, printed, "and its second line")
	require.NotContains(t, printed, "=== ")
	require.Contains(t, printed, "The 3 slowest of 5 tests:\n")
	require.True(t, strings.HasSuffix(printed, "\nFAIL\n"), printed)
	require.Equal(t, 3, strings.Count(printed[strings.Index(printed, "slowest"):], "FAIL\texample.com/m/"), printed)
}

// lines are those that two runs have in common: without times, and the stacks of
// goroutines.
func lines(output string) []string {
	output = regexp.MustCompile(`\d+\.\d+s`).ReplaceAllString(output, "0s")
	var all []string
	for line := range strings.Lines(output) {
		line = strings.Trim(line, " \n")
		if line == "PASS" || strings.HasPrefix(line, "\t") || regexp.MustCompile(`0x|goroutine`).MatchString(line) {
			continue
		}
		all = append(all, line)
	}
	return all
}

func goTest(t *testing.T, dir string, flags ...string) []byte {
	t.Helper()
	args := slices.Concat([]string{"test", "-vet=off"}, flags, []string{"./..."})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	require.ErrorContains(t, err, "exit status 1")
	return out
}

func TestAPackageThatPassedIsOneLine(t *testing.T) {
	printed, failed := output(
		event{Action: "start", Package: "p"},
		event{Action: "run", Package: "p", Test: "TestA"},
		event{Action: "output", Package: "p", Test: "TestA", Output: "=== RUN   TestA\n"},
		event{Action: "output", Package: "p", Test: "TestA", Output: "noise\n"},
		event{Action: "pass", Package: "p", Test: "TestA", Elapsed: 1.5},
		event{Action: "output", Package: "p", Output: "PASS\n"},
		event{Action: "output", Package: "p", Output: "ok  \tp\t1.600s\n"},
		event{Action: "pass", Package: "p", Elapsed: 1.6},
	)
	require.False(t, failed)
	require.Equal(t, "ok  \tp\t1.600s\nThe 1 slowest of 1 tests:\n    1.50s  p TestA\n", printed)
}

func TestTheSlowestTestsAreListedWithoutTheirSubtests(t *testing.T) {
	printed, _ := output(
		event{Action: "pass", Package: "p", Test: "TestA", Elapsed: 1},
		event{Action: "pass", Package: "p", Test: "TestB/part", Elapsed: 9},
		event{Action: "pass", Package: "p", Test: "TestB", Elapsed: 9},
		event{Action: "fail", Package: "q", Test: "TestC", Elapsed: 100},
		event{Action: "skip", Package: "q", Test: "TestD"},
		event{Action: "pass", Package: "p"},
		event{Action: "pass", Package: "q"},
	)
	require.Equal(t, "The 3 slowest of 4 tests:\n  100.00s  q TestC\n    9.00s  p TestB\n    1.00s  p TestA\n", printed)
}

// go test may be killed, and its output end anywhere.
func TestAPackageThatDidNotEndFails(t *testing.T) {
	printed, failed := output(
		event{Action: "start", Package: "p"},
		event{Action: "run", Package: "p", Test: "TestA"},
		event{Action: "output", Package: "p", Test: "TestA", Output: "    a_test.go:1: the last words\n"},
	)
	require.True(t, failed)
	require.Equal(t,
		"--- TestA did not end\n    a_test.go:1: the last words\nFAIL\tp\tdid not end\nFAIL\n", printed)
}

func TestALineThatIsNoEventIsPrinted(t *testing.T) {
	var out bytes.Buffer
	l := newLog(&out)
	require.NoError(t, l.read(strings.NewReader("go: not found\n{}\n{\"Action\":\"outp")))
	require.Equal(t, "go: not found\n{}\n{\"Action\":\"outp", out.String())
}

func output(events ...event) (printed string, failed bool) {
	var in, out bytes.Buffer
	to := json.NewEncoder(&in)
	for _, e := range events {
		if err := to.Encode(e); err != nil {
			panic(err)
		}
	}
	l := newLog(&out)
	if err := l.read(&in); err != nil {
		panic(err)
	}
	l.close(3)
	return out.String(), l.failed()
}
