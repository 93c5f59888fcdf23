// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the results of the stories in testdata instead of comparing them")

// A story is a file of testdata: what happens to the replicas of a group, and
// what they do:
//
//	start a b
//	run 10s
//	-> 3s a gains 0 2
//	-> 3s b gains 1 3
//
// A result has the time since the beginning, the replica, what it does, and the
// slots. The network takes no time. These lines make things happen:
//
//	slots 8, standbys 2       before the first start; the default is 4, 1
//	start a, kill a, leave a  begins and ends a process
//	pause a, resume a         stops a process (SIGSTOP), and continues it
//	cut a, mend a             takes a's network away, and gives it back
//	deafen a                  stops a's watch from showing anything
//	away 5m                   stops the hub from answering
//	late-deletions 10s        delays deletions on their way to the hub
//	drain a 30s               sets how long drains of a take
//	warm a 30s                sets how long a's caches of a slot take to fill
//	counts a 0:7 3:9          sets how many clusters a knows of in each slot
//	run 10s                   lets time pass
//	owners                    shows who owns what
//
//	go test ./clustercache/sharding/internal/protocol -rewrite   # after a change of behavior, or to write a story
func TestReplicasThatStartTogetherShareAtOnce(t *testing.T)            { play(t) }
func TestSlotsOfADeadMemberGoToItsStandbys(t *testing.T)               { play(t) }
func TestMemberThatLeavesHandsOverAtOnce(t *testing.T)                 { play(t) }
func TestNewMemberGetsItsShare(t *testing.T)                           { play(t) }
func TestPlannedMoveWaitsForTheHeirsCaches(t *testing.T)               { play(t) }
func TestWaitForTheHeirsCachesIsBounded(t *testing.T)                  { play(t) }
func TestMemberThatLeavesDoesNotWaitForCaches(t *testing.T)            { play(t) }
func TestHeirWhoseCachesDoNotFillLosesItsClaim(t *testing.T)           { play(t) }
func TestStoppedProcessOwnsNothingWhenItContinues(t *testing.T)        { play(t) }
func TestHubThatIsAwayLeavesAllAsItWas(t *testing.T)                   { play(t) }
func TestReplicaWithoutNetworkStopsBeforeOthersBegin(t *testing.T)     { play(t) }
func TestReplicasThatReturnOneByOneFindAllAsItWas(t *testing.T)        { play(t) }
func TestDeletionThatArrivesLateIsRefused(t *testing.T)                { play(t) }
func TestMemberThatEndsAtOnceGetsNothing(t *testing.T)                 { play(t) }
func TestDrainIsBounded(t *testing.T)                                  { play(t) }
func TestWatchThatFallsSilentIsReplaced(t *testing.T)                  { play(t) }
func TestLastReplicaRestarts(t *testing.T)                             { play(t) }
func TestClustersThatAreUnevenMoveSlots(t *testing.T)                  { play(t) }
func TestNextEldestMemberPlans(t *testing.T)                           { play(t) }
func TestEldestMemberThatRestartsGetsItsSlotsBack(t *testing.T)        { play(t) }
func TestClustersThatAreFoundWaitForARenewal(t *testing.T)             { play(t) }
func TestFirstPlanKnowsTheClusters(t *testing.T)                       { play(t) }
func TestReplicasThatRestartTogetherGetWhatTheyHad(t *testing.T)       { play(t) }
func TestEldestMemberDiesWhileItsPlanIsCarriedOut(t *testing.T)        { play(t) }
func TestReplicaThatRestartsGetsWhatItHad(t *testing.T)                { play(t) }
func TestReplicaWithAnotherNumberOfSlotsTakesNoPart(t *testing.T)      { play(t) }
func TestMemberThatRestartsQuicklyWaitsForItsPredecessor(t *testing.T) { play(t) }

// TestWarmedCountsForItsOwnWarmAlone has a report of another Warm: the slot was
// given up meanwhile.
func TestWarmedCountsForItsOwnWarmAlone(t *testing.T) {
	w := newWorld(1, 4)
	w.start("a", 1)
	w.run(10 * time.Second)
	b := w.start("b", 1)
	b.warming = time.Hour
	for token, want := range []int{0, 2} {
		w.run(5 * time.Second)
		b.do(func() {
			for n := range w.slots {
				b.replica.Warmed(n, int64(token))
			}
		})
		w.run(5 * time.Second)
		owned := 0
		for n := range w.slots {
			if _, ok := b.owns(n); ok {
				owned++
			}
		}
		require.Equal(t, want, owned)
	}
}

var capital = regexp.MustCompile(`\B[A-Z]`)

// fileOf returns the story of a test: testdata/drain-is-bounded.txt of
// TestDrainIsBounded.
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
	s := story{t: t, w: newWorld(1, 4)}
	s.w.weather.latency = 0
	s.w.log = s.note
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "->") {
			continue
		}
		s.out.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			s.line(words)
			s.flush()
		}
	}
	require.Empty(t, s.w.failures)
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(s.out.String()), 0o600))
	}
	require.Equal(t, string(text), s.out.String(), file)
}

type story struct {
	t     *testing.T
	w     *world
	out   strings.Builder
	lines []string // of results, without slots
	slots map[string][]int
}

// note adds a result. Those that differ in the slot alone become one line.
func (s *story) note(line string) {
	cut := strings.LastIndexByte(line, ' ')
	text, number := line[:cut], line[cut+1:]
	slot, err := strconv.Atoi(number)
	if err != nil {
		text = line
	}
	text = fmt.Sprintf("-> %v %s", s.w.now.Truncate(100*time.Millisecond), text)
	if s.slots == nil {
		s.slots = map[string][]int{}
	}
	if !slices.Contains(s.lines, text) {
		s.lines = append(s.lines, text)
	}
	if err == nil {
		s.slots[text] = append(s.slots[text], slot)
	}
}

func (s *story) flush() {
	for _, line := range s.lines {
		s.out.WriteString(line + list(s.slots[line]) + "\n")
	}
	s.lines, s.slots = nil, nil
}

func list(slots []int) string {
	slices.Sort(slots)
	out := ""
	for _, n := range slots {
		out += " " + strconv.Itoa(n)
	}
	return out
}

func (s *story) line(words []string) {
	s.t.Helper()
	w := s.w
	switch words[0] {
	case "slots":
		latency := w.weather.latency
		s.w = newWorld(1, s.number(words[1]))
		s.w.weather.latency, s.w.log = latency, s.note
	case "standbys":
		w.config.Standbys = s.number(words[1])
	case "reslot":
		w.config.Slots = s.number(words[1])
	case "start":
		for _, name := range words[1:] {
			w.start(name, 1)
		}
	case "kill":
		s.process(words[1]).kill()
	case "leave":
		p := s.process(words[1])
		p.do(func() { p.replica.Leave(p.clock()) })
	case "pause":
		s.process(words[1]).pause()
	case "resume":
		s.process(words[1]).resume()
	case "cut", "mend":
		s.process(words[1]).cut = words[0] == "cut"
	case "deafen":
		s.process(words[1]).deaf = true
	case "away":
		w.weather.away = w.now + s.duration(words[1])
	case "late-deletions":
		w.weather.deletions = s.duration(words[1])
	case "drain":
		s.process(words[1]).drain = s.duration(words[2])
	case "warm":
		s.process(words[1]).warming = s.duration(words[2])
	case "counts":
		s.counts(s.process(words[1]), words[2:])
	case "run":
		w.run(s.duration(words[1]))
	case "owners":
		s.owners()
	default:
		require.Fail(s.t, "unknown word", words[0])
	}
}

func (s *story) counts(p *process, words []string) {
	counts := make([]int, s.w.slots)
	for _, word := range words {
		slot, count, _ := strings.Cut(word, ":")
		counts[s.number(slot)] = s.number(count)
	}
	p.do(func() { p.replica.SetCounts(counts) })
}

func (s *story) owners() {
	for _, p := range s.w.processes {
		var owned, standby []int
		for n := range s.w.slots {
			if _, ok := p.owns(n); ok {
				owned = append(owned, n)
			}
			if p.replica.StandsBy(n) {
				standby = append(standby, n)
			}
		}
		fmt.Fprintf(&s.out, "-> %v %s owns%s, stands by for%s\n", s.w.now, p.identity, list(owned), list(standby))
	}
}

func (s *story) process(identity string) *process {
	s.t.Helper()
	i := slices.IndexFunc(s.w.processes, func(p *process) bool { return p.identity == identity })
	require.GreaterOrEqual(s.t, i, 0, identity)
	return s.w.processes[i]
}

func (s *story) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err)
	return n
}

func (s *story) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}
