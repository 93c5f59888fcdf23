// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// text returns the value of a string literal, or of several that are joined.
func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return text(t, sum.X) + text(t, sum.Y)
	}
	s, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	require.NoError(t, err)
	return s
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return file
}

// constants returns the values of the string constants of a file whose names
// match.
func constants(t *testing.T, path, name string) []string {
	t.Helper()
	var values []string
	ast.Inspect(parse(t, path), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !regexp.MustCompile(name).MatchString(spec.Names[0].Name) {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			values = append(values, value)
		}
		return true
	})
	require.NotEmpty(t, values, path)
	return values
}

// TestEveryPhaseAndReasonHasASectionInTheRunbook reads them from the code, and
// what the debug page says about them.
func TestEveryPhaseAndReasonHasASectionInTheRunbook(t *testing.T) {
	runbook := read(t, "docs/runbook.md")
	for _, phase := range constants(t, "clustercache/status/phase.go", "^Phase") {
		require.Contains(t, runbook, "\n### Phase "+phase+"\n")
	}
	reasons := slices.Concat(
		constants(t, "clustercache/internal/connection/errors.go", "^Reason"),
		[]string{"NotServed", "NotWatchable", "OverBudget"}, // of watches
		constants(t, "internal/transport/errors.go", "^[A-Z]"))
	known := map[string]bool{}
	for _, reason := range reasons {
		known[reason] = true
		require.Contains(t, runbook, "\n### "+reason+"\n")
	}
	sentences := 0
	ast.Inspect(parse(t, "clustercache/status/phase.go"), func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			return v.Names[0].Name == "reasons"
		}
		if _, ok := n.(*ast.FuncDecl); ok {
			return false
		}
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		sentences++
		sentence := text(t, pair.Value)
		require.Regexp(t, `\n### [A-Za-z]+\n\n`+regexp.QuoteMeta(sentence)+`\n`, runbook)
		return true
	})
	require.Equal(t, len(known), sentences, "clustercache/status/phase.go says something about each")
}

var (
	metricName = regexp.MustCompile(`fleetcache_[a-z_]+`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestRulesAndBoardUseOnlyMetricsThatExist reads the names from
// docs/metrics.md, which is compared with the registry.
func TestRulesAndBoardUseOnlyMetricsThatExist(t *testing.T) {
	exported := map[string]bool{}
	for line := range strings.SplitSeq(read(t, "docs/metrics.md"), "\n") {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `fleetcache_") {
			name := strings.Trim(cells[1], " `")
			exported[name] = true
			if strings.TrimSpace(cells[2]) == "histogram" {
				exported[name+"_bucket"], exported[name+"_sum"], exported[name+"_count"] = true, true, true
			}
		}
	}
	require.Greater(t, len(exported), 20)

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, "docs/alerts.yaml")), &rules))
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct {
				Expr, Format string
				Instant      bool
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "docs/grafana.json")), &board))
	var expressions []string
	anchors := anchorsOf(t, "docs/runbook.md")
	for _, rule := range rules.Groups[0].Rules {
		expressions = append(expressions, rule.Expr)
		page, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		require.Equal(t, "https://github.com/fleetcache/fleetcache/blob/main/docs/runbook.md", page, rule.Alert)
		require.Contains(t, anchors, anchor, rule.Alert)
	}
	for _, panel := range board.Panels {
		require.NotEmpty(t, panel.Targets)
		for _, target := range panel.Targets {
			expressions = append(expressions, target.Expr)
			if panel.Type == "table" {
				require.Equal(t, "table", target.Format, panel.Title)
				require.True(t, target.Instant, "%s: one row for each series of now", panel.Title)
			}
		}
	}
	used := map[string]bool{}
	for _, expression := range expressions {
		names := metricName.FindAllString(expression, -1)
		require.NotEmpty(t, names, expression)
		for _, name := range names {
			used[name] = true
			require.True(t, exported[name], "%s in %s", name, expression)
		}
	}
	require.Greater(t, len(used), 15)
}

// anchorsOf returns the anchors of a page's headings.
func anchorsOf(t *testing.T, path string) []string {
	t.Helper()
	var anchors []string
	for _, h := range heading.FindAllStringSubmatch(read(t, path), -1) {
		anchors = append(anchors,
			strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), ""), " ",
				"-"))
	}
	return anchors
}

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("(?s)```.*?```")
)

// TestLinksLeadSomewhere follows every link of the pages that stays in the
// repository.
func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	examples, err := filepath.Glob("examples/*/README.md")
	require.NoError(t, err)
	deployments, err := filepath.Glob("examples/deploy/*/README.md")
	require.NoError(t, err)
	pages = slices.Concat(pages, examples, deployments,
		[]string{
			".github/pull_request_template.md", "README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md",
			"clustercache/clusterapi/README.md",
		})
	require.Greater(t, len(pages), 12)
	for _, page := range pages {
		dir := strings.TrimPrefix(filepath.Dir(page)+"/", "./")
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(l[1], "#")
			target := dir + path
			if path == "" {
				target = page
			}
			require.FileExists(t, target, "%s links to %s", page, l[1])
			if anchor != "" {
				require.Contains(t, anchorsOf(t, target), anchor, "%s links to %s", page, l[1])
			}
		}
	}
}

// TestGuaranteesAreNumberedOnce: G1, G2 and so on, in order.
func TestGuaranteesAreNumberedOnce(t *testing.T) {
	numbers := regexp.MustCompile(`(?m)^### G(\d+) `).FindAllStringSubmatch(read(t, "docs/GUARANTEES.md"), -1)
	require.Greater(t, len(numbers), 20)
	for i, number := range numbers {
		require.Equal(t, strconv.Itoa(i+1), number[1])
	}
}

var inTests = regexp.MustCompile("`([a-z][a-z0-9_./-]*/)([a-z0-9_]+|{[a-z0-9_,]+})_test\\.go`")

// TestEveryGuaranteeHasALeadingTest looks at each section of a promise: its
// test comes before the files of its themes, which exist and have tests.
func TestEveryGuaranteeHasALeadingTest(t *testing.T) {
	page, _, found := strings.Cut(read(t, "docs/GUARANTEES.md"), "\n## Not promised\n")
	require.True(t, found)
	promises := strings.Split(page, "\n### ")[1:]
	require.Greater(t, len(promises), 25)
	for _, promise := range promises {
		name, _, _ := strings.Cut(promise, "\n")
		leading, themes, found := strings.Cut(promise, "\n**Test:** `Test")
		require.True(t, found, name)
		require.NotRegexp(t, inTests, leading, name)
		for _, files := range inTests.FindAllStringSubmatch(themes, -1) {
			for file := range strings.SplitSeq(strings.Trim(files[2], "{}"), ",") {
				require.Contains(t, read(t, files[1]+file+"_test.go"), "\nfunc Test", name)
			}
		}
	}
}

// TestEachFlagOfATestIsDocumented reads the flags from the code, and looks for
// the tests that the page names where it says that they are.
func TestEachFlagOfATestIsDocumented(t *testing.T) {
	page := read(t, "docs/testing.md")
	defined := regexp.MustCompile(`flag\.(?:Bool|Duration|Float64|Int|Int64|String|Uint|Uint64)\("([^"]+)"`)
	flags := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, match := range defined.FindAllStringSubmatch(read(t, path), -1) {
			flags++
			documented := regexp.MustCompile("[ `]-" + regexp.QuoteMeta(match[1]) + "[ =`\n]")
			require.True(t, documented.MatchString(page), "-%s of %s", match[1], path)
		}
		return nil
	}))
	require.Greater(t, flags, 15)

	places := regexp.MustCompile("`(Test[A-Za-z]+)` in `([a-z/]+)`").FindAllStringSubmatch(page, -1)
	require.Greater(t, len(places), 5)
	for _, place := range places {
		files, err := filepath.Glob(filepath.Join(place[2], "*_test.go"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(files, func(file string) bool {
			return strings.Contains(read(t, file), "\nfunc "+place[1]+"(")
		}), "%s is not in %s", place[1], place[2])
	}
}

// TestAdoptionChangesAtMostFifteenLines compares the example before and after:
// a line that is changed counts once, and so does one that is added or taken
// away, empty ones included.
func TestAdoptionChangesAtMostFifteenLines(t *testing.T) {
	before := strings.Split(read(t, "examples/adopt/before/main.go"), "\n")
	after := strings.Split(read(t, "examples/adopt/after/main.go"), "\n")
	require.Equal(t, 2, changed([]string{"a", "b", "c"}, []string{"a", "x", "c", "d"}), "one changed, one added")
	n := changed(before, after)
	t.Logf("%d of %d lines changed", n, len(before))
	require.Positive(t, n)
	require.LessOrEqual(t, n, 15)
	for _, page := range []string{"README.md", "docs/migrating.md", "examples/adopt/README.md"} {
		require.Regexp(t, numbers[n]+` (changed |other )?lines`, read(t, page), page)
	}
	const start = "type reconciler struct"
	require.Equal(t, from(t, before, start), from(t, after, start), "the reconciler itself is the same")
}

// numbers are the words that pages use for a number of lines.
var numbers = map[int]string{13: "[Tt]hirteen", 14: "[Ff]ourteen", 15: "[Ff]ifteen"}

func from(t *testing.T, lines []string, prefix string) []string {
	t.Helper()
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, prefix) })
	require.Positive(t, i)
	return lines[i:]
}

// changed counts the lines in which two texts differ, by their longest common
// part.
func changed(a, b []string) int {
	// common[i][j] is the length of the longest common part of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	total, removed, added := 0, 0, 0
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			total, removed, added = total+max(removed, added), 0, 0
			i, j = i+1, j+1
		case j == len(b) || (i < len(a) && common[i+1][j] >= common[i][j+1]):
			removed, i = removed+1, i+1
		default:
			added, j = added+1, j+1
		}
	}
	return total + max(removed, added)
}
