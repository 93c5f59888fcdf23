// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

var rewrite = flag.Bool("rewrite", false, "write the results of the stories in testdata instead of comparing them")

// A story is a file of testdata, in which each event is a line, followed by a
// line with its result:
//
//	tick
//	-> 10s Ready, probe runs: StartProbe
//
// A result has the time since the beginning, the phase, what is known of the
// cluster, and the actions. A tick moves the time to the deadline, and wait
// moves it without an event. Revisions are single letters. A rule of dashes
// begins anew with another cluster.
//
//	go test ./clustercache/internal/phase -rewrite   # after a change of behavior, or to write a story
var (
	kinds = map[string]phase.Kind{
		"asked":        phase.Asked,
		"changed":      phase.Changed,
		"tick":         phase.Tick,
		"succeeded":    phase.Succeeded,
		"failed":       phase.Failed,
		"unauthorized": phase.Unauthorized,
		"doubted":      phase.Doubted,
		"unrecognized": phase.Unrecognized,
		"recognized":   phase.Recognized,
		"broken":       phase.Broken,
		"torn":         phase.Torn,
		"rolledback":   phase.RolledBack,
		"removed":      phase.Removed,
		"resolved":     phase.Resolved,
	}
	classes = map[string]phase.Class{
		"noaccess":    phase.NoAccess,
		"nocluster":   phase.NoCluster,
		"policy":      phase.Policy,
		"rejected":    phase.Rejected,
		"busy":        phase.Busy,
		"unreachable": phase.Unreachable,
		"same":        phase.Same,
	}
	actionNames = []string{"StartConnect", "StartProbe", "Cancel", "Notify", "Up", "Down", "Renew", "Evict", "Silence"}
	running     = []string{"", ", attempt runs", ", probe runs"}
)

func TestUnauthorizedResolvesAgainOncePerRevision(t *testing.T)                        { play(t) }
func TestRefreshThatFailsKeepsTheConnectionInUse(t *testing.T)                         { play(t) }
func TestSecretDeletedAndRecreatedWithinGraceDoesNotDisconnect(t *testing.T)           { play(t) }
func TestGraceEnds(t *testing.T)                                                       { play(t) }
func TestAnotherHistoryRenewsAndRemovalEvicts(t *testing.T)                            { play(t) }
func TestServerThatIsNotRecognizedIsDegraded(t *testing.T)                             { play(t) }
func TestDoubtThatArisesDuringAnAttemptIsFollowedUp(t *testing.T)                      { play(t) }
func TestChangeDuringAnAttemptIsFollowedByAnotherUnlessTheAttemptKnowsIt(t *testing.T) { play(t) }
func TestDeadPeerIsDegradedThenDisconnected(t *testing.T)                              { play(t) }
func TestLateResultsChangeNothing(t *testing.T)                                        { play(t) }
func TestSilenceIsReportedOnce(t *testing.T)                                           { play(t) }
func TestServerThatRefusesConnectionsIsDownWithinTwoSeconds(t *testing.T)              { play(t) }
func TestBurstOfBrokenStreamsCausesOneProbe(t *testing.T)                              { play(t) }
func TestStreamsThatBreakAreResumedBeforeAProbe(t *testing.T)                          { play(t) }
func TestLossLastsUntilTheNextConnection(t *testing.T)                                 { play(t) }
func TestAttemptsThatFailAreCountedAndTooEarlyOnesAreNot(t *testing.T)                 { play(t) }
func TestPolicyThatRefusesIsAskedAgain(t *testing.T)                                   { play(t) }
func TestOutageIsOverSoonAfterTheServerReturns(t *testing.T)                           { play(t) }
func TestRefusalOutlastsFailuresOfAnotherKind(t *testing.T)                            { play(t) }
func TestSuccessEndsItsOwnFaultAlone(t *testing.T)                                     { play(t) }
func TestServerThatReportsItsFailingChecksIsNotDead(t *testing.T)                      { play(t) }
func TestReportsOfTheSameAccessKeepItsPause(t *testing.T)                              { play(t) }
func TestReportsOfAClusterThatWaitsForItsAccessKeepItsPhase(t *testing.T)              { play(t) }
func TestReportsMakeNoServerFailFaster(t *testing.T)                                   { play(t) }

var capital = regexp.MustCompile(`\B[A-Z]`)

// fileOf returns the story of a test: testdata/grace-ends.txt of TestGraceEnds.
func fileOf(test string) string {
	name := capital.ReplaceAllString(strings.TrimPrefix(test, "Test"), "-$0")
	return filepath.Join("testdata", strings.ToLower(name)+".txt")
}

// TestEveryStoryIsPlayed looks for the test of each file.
func TestEveryStoryIsPlayed(t *testing.T) {
	source, err := os.ReadFile("stories_test.go")
	require.NoError(t, err)
	played := map[string]bool{}
	for _, m := range regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) +\{ play`).FindAllStringSubmatch(
		string(source), -1) {
		played[fileOf(m[1])] = true
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Len(t, files, len(played))
	for _, file := range files {
		require.True(t, played[file], file)
	}
}

// play compares a story with the results.
func play(t *testing.T) {
	t.Helper()
	file := fileOf(t.Name())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	r, config := newRun(t), cfg
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "->") {
			continue
		}
		out.WriteString(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "---":
			r = newRun(t)
		case words[0] == "wait":
			r.now = r.now.Add(r.duration(words[1]))
		case words[0] == "silent-after":
			config.SilentAfter = r.duration(words[1])
		default:
			e := r.event(words)
			var actions []phase.Action
			r.s, actions = phase.Next(config, r.s, e, r.now)
			out.WriteString(r.result(actions))
		}
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o600))
	}
	require.Equal(t, string(text), out.String(), file)
}

// event reads the event of a line.
func (r *run) event(words []string) phase.Event {
	r.t.Helper()
	kind, known := kinds[words[0]]
	require.True(r.t, known, words[0])
	e := phase.Event{
		Kind:    kind,
		Gen:     r.s.Gen,
		Changes: r.s.Changes,
	}
	switch kind {
	case phase.Tick:
		require.False(r.t, r.s.Deadline().IsZero(), "no deadline")
		r.now = r.s.Deadline()
	case phase.Failed, phase.Unrecognized:
		e.Err = errSome
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		class, isClass := classes[word]
		switch {
		case isClass:
			e.Class = class
		case len(word) == 1:
			e.Revision = word
		case word == "unproven":
			e.Unproven = true
		case word == "another":
			e.NewEpoch = true
		case word == "early":
			e.Early = true
		case word == "ailing":
			e.Alive, e.Err = true, errSome
		case word == "late":
			e.Gen--
		case name == "reason":
			e.Reason = value
		case name == "changes":
			n, err := strconv.ParseUint(value, 10, 64)
			require.NoError(r.t, err)
			e.Changes = n
		case name == "alive":
			e.Life = r.now.Add(-r.duration(value))
		default:
			require.Fail(r.t, "unknown word", word)
		}
	}
	return e
}

func (r *run) duration(text string) time.Duration {
	r.t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(r.t, err)
	return d
}

// result is the line after an event.
func (r *run) result(actions []phase.Action) string {
	out := fmt.Sprintf("-> %s %s%s", r.now.Sub(start), r.s.Phase, running[r.s.Running])
	dues := []time.Time{r.s.ProbeAt, r.s.RetryAt, r.s.GraceUntil, r.s.SilentAt}
	for i, name := range []string{"probe", "retry", "end of grace", "silence"} {
		if !dues[i].IsZero() {
			out += fmt.Sprintf(", %s in %s", name, dues[i].Sub(r.now))
		}
	}
	if r.s.Prove || r.s.Replaces {
		out += ", to be proven"
	}
	if r.s.Unrecognized {
		out += ", unrecognized"
	}
	if r.s.Failed > 0 {
		out += fmt.Sprintf(", %d failed", r.s.Failed)
	}
	if !r.s.LostSince.IsZero() {
		out += fmt.Sprintf(", lost at %s", r.s.LostSince.Sub(start))
	}
	if r.s.Err != nil {
		out += strings.TrimSuffix(", error "+r.s.Reason, " ")
	}
	names := make([]string, 0, len(actions))
	for _, a := range actions {
		names = append(names, actionNames[a])
	}
	if len(names) > 0 {
		out += ": " + strings.Join(names, ", ")
	}
	return out + "\n"
}
