// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/identity"
)

var rewrite = flag.Bool("rewrite", false, "write the results of the stories in testdata instead of comparing them")

// TestStories plays the files of testdata. Each event is a line, followed by a
// line with its result:
//
//	dial b shared
//	-> in use; unproven b; unconfirmed b
//
// Events: "dial C [shared] [query] [candidate]" makes a connection, which
// "dialing C" may begin earlier; "close C" ends it, and "adopt C [moved]" uses
// the candidate's access, with another address or not, proven over C. "query
// [http1]" decides how a query is sent; "proven [C]", "failed" and "forbidden"
// are its outcomes, and "confirmed C" is that of one over a connection of
// watches, which "carried C" says has answered one. "first" is a watch that may
// be sent over a connection without a proof. "concluded C" ends the query that C was made for. "end" and "break"
// end a watch at its time and early. "read", "list", "watch", "busy watch" and
// "use C" are requests, and "after" is one that needs a later query than "mark".
// "elsewhere C" is an answer of another cluster. "version [early|doubtful]"
// decides about a query of the version, and "version is known|unknown" is its
// outcome. "due" and "withheld" show when and whether the identity is queried.
// "wait 1m" moves the clock. A rule of dashes begins anew.
//
//	go test ./internal/identity -rewrite   # after a change of behavior, or to write a story
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var played strings.Builder
			s := newSession()
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSpace(line)
				switch {
				case strings.HasPrefix(line, "->"):
					continue
				case strings.HasPrefix(line, "---"):
					s = newSession()
				case line != "" && !strings.HasPrefix(line, "#"):
					line += "\n" + strings.TrimRight("-> "+s.play(t, strings.Fields(line)), " ")
				}
				fmt.Fprintln(&played, line)
			}
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(played.String()), 0o644))
				return
			}
			require.Equal(t, string(text), played.String())
		})
	}
}

// session is a story under way.
type session struct {
	ledger    identity.Ledger[string]
	now       time.Time
	used      identity.Access
	candidate identity.Access
	made      map[string]uint64
	queries   map[string]*identity.Query
	open      []string
	number    uint64 // of the query under way
	mark      uint64
	sent      time.Time
}

func newSession() *session {
	s := &session{
		now:     time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		made:    map[string]uint64{},
		queries: map[string]*identity.Query{},
	}
	s.ledger.Adopted(&s.used, false, identity.Proof{UID: "uid", Sent: s.now, Number: s.ledger.Number()}, "", 0)
	return s
}

// play plays an event, and returns its result.
func (s *session) play(t *testing.T, event []string) string {
	t.Helper()
	c := ""
	if len(event) > 1 {
		c = event[1]
	}
	l := &s.ledger
	var result string
	switch event[0] {
	case "dialing":
		s.made[c] = l.Number()
	case "dial":
		if s.made[c] == 0 {
			s.made[c] = l.Number()
		}
		made := identity.Dial{Access: &s.used, Shared: slices.Contains(event, "shared")}
		if slices.Contains(event, "query") {
			made.Query = &identity.Query{}
			s.queries[c] = made.Query
		}
		if slices.Contains(event, "candidate") {
			made.Access = &s.candidate
		}
		s.open = append(s.open, c)
		result = map[bool]string{true: "in use", false: "not in use"}[l.Dialed(c, made)]
	case "close":
		l.Closed(c)
	case "adopt":
		proof := identity.Proof{UID: "uid", Sent: s.now, Number: l.Number()}
		l.Adopted(&s.candidate, slices.Contains(event, "moved"), proof, c, s.made[c])
	case "query":
		way, over := l.Way(c != "http1")
		s.number, s.sent = l.Number(), s.now
		result = strings.TrimSpace("sent " + string(way) + " " + over)
	case "proven":
		l.Proven(s.number, s.sent, c, s.made[c])
		result = string(l.Answered())
	case "failed":
		result = string(l.Failed(s.now))
	case "forbidden":
		l.Withheld(s.now)
	case "withheld":
		result = "not asked"
		if l.AsksWithheld(s.now) {
			result = "asked"
		}
	case "concluded":
		l.Concluded(s.queries[c])
	case "confirmed":
		l.Confirmed(c)
	case "carried":
		l.Carried(c)
	case "first":
		result = "waits"
		if l.First() {
			result = "sent"
		}
	case "end", "break":
		l.Ended(event[0] == "break")
	case "read":
		result = s.request(identity.Need[string]{Age: identity.Age, All: true})
	case "list":
		result = s.request(identity.Need[string]{Age: identity.Soon, All: true})
	case "watch":
		result = s.request(identity.Need[string]{Age: identity.Soon, Anew: true, All: true})
	case "use":
		result = s.request(identity.Need[string]{Age: identity.Age, Over: c})
	case "mark":
		s.mark = l.Number()
	case "after":
		result = s.request(identity.Need[string]{After: s.mark})
	case "busy":
		result = "waits"
		if l.Tolerates(s.now) {
			result = "goes on"
		}
	case "elsewhere":
		all := l.Doubtful(c)
		slices.Sort(all)
		for _, c := range all {
			l.Closed(c)
		}
		result = "closes " + strings.Join(all, " ")
	case "version":
		result = s.version(c, event[1:])
	case "due":
		result = "in " + l.Due(c == "presumed", s.now).Sub(s.now).String()
	case "wait":
		d, err := time.ParseDuration(c)
		require.NoError(t, err)
		s.now = s.now.Add(d)
	default:
		require.Fail(t, "no such event", "%q", event)
	}

	return result + s.state(result != "")
}

func (s *session) request(n identity.Need[string]) string {
	if s.ledger.Satisfies(n, s.now) {
		return "sent"
	}
	return "waits"
}

func (s *session) version(c string, words []string) string {
	switch c {
	case "is":
		s.ledger.VersionAnswered(words[1] == "known")
		return ""
	case "doubtful": // a query went over a new connection
		return "wanted " + strconv.FormatBool(s.ledger.Replaced(true, s.now))
	}
	if s.ledger.AsksVersion(c == "early", s.now) {
		return "asked"
	}
	return "not asked"
}

// state describes what is not proven.
func (s *session) state(more bool) string {
	var b strings.Builder
	add := func(name string, of func(string) bool) {
		var all []string
		for _, c := range s.open {
			if of(c) {
				all = append(all, c)
			}
		}
		if len(all) > 0 {
			if more || b.Len() > 0 {
				b.WriteString("; ")
			}
			b.WriteString(name + " " + strings.Join(all, " "))
		}
	}
	add("unproven", s.ledger.Unproven)
	unconfirmed := s.ledger.Unconfirmed()
	add("unconfirmed", func(c string) bool { return slices.Contains(unconfirmed, c) })
	return b.String()
}

// TestHazardMachineSleeps: the monotonic clock stands still while a machine
// sleeps, and the wall clock may be set back.
func TestHazardMachineSleeps(t *testing.T) {
	var l identity.Ledger[string]
	now := time.Now()
	l.Adopted(&identity.Access{}, false, identity.Proof{UID: "uid", Sent: now, Number: l.Number()}, "", 0)
	recent := identity.Need[string]{Age: identity.Age}
	require.True(t, l.Satisfies(recent, now.Add(time.Minute)))
	require.False(t, l.Satisfies(recent, now.Add(2*time.Minute)), "by the monotonic clock")
	require.False(t, l.Satisfies(recent, now.Round(0).Add(2*time.Minute)), "by the wall clock")
}

// TestHazardAnotherClusterIsProven: an attempt to connect has just proven
// another cluster, whose epoch has not begun yet.
func TestHazardAnotherClusterIsProven(t *testing.T) {
	var l identity.Ledger[string]
	require.False(t, l.Contradicts("a"), "nothing is proven")
	l.Adopted(&identity.Access{}, false, identity.Proof{UID: "a", Sent: time.Now()}, "", 0)
	require.False(t, l.Contradicts("a"))
	require.True(t, l.Contradicts("b"))
}
