// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package width_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/informerpool/internal/width"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write the results of the stories in testdata instead of comparing them")

// story plays the requests of one cluster.
type story struct {
	t        *testing.T
	width    width.Width
	now      time.Time
	requests map[string]*width.Request // in flight
}

// TestStories plays the files of testdata, in which each event is a line,
// followed by a line with its result:
//
//	refused core/pods 2s
//	-> 1s: 3 in flight, limit 3
//
// A subject is server/resource, or server/resource/selection; core/k3..7 are
// five resources. "send" lists which of them have to wait, and when that may
// change by itself.
//
//	go test ./informerpool/internal/width -rewrite   # after a change of behavior, or to write a story
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &story{t: t, now: time.Unix(0, 0), requests: map[string]*width.Request{}}
			var out strings.Builder
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "->") {
					continue
				}
				out.WriteString(line)
				if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
					out.WriteString(s.play(words))
				}
			}
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o600))
			}
			require.Equal(t, string(text), out.String())
		})
	}
}

// play plays an event, and returns its result.
func (s *story) play(words []string) string {
	event, subjects, after := words[0], words[1:], time.Duration(0)
	if len(subjects) > 0 {
		if d, err := time.ParseDuration(subjects[len(subjects)-1]); err == nil {
			after, subjects = d, subjects[:len(subjects)-1]
		}
	}
	if event == "wait" {
		s.now = s.now.Add(after)
		return ""
	}
	waiting, until := 0, ""
	for _, name := range expand(s.t, subjects) {
		r := s.requests[name]
		delete(s.requests, name)
		switch event {
		case "send":
			require.Nil(s.t, r, name)
			words := strings.SplitN(name+"/", "/", 3)
			r = &width.Request{Subject: width.Subject{Server: words[0], Resource: words[1], Selection: words[2]}}
			ok, again := s.width.Reserve(r, s.now)
			switch {
			case ok:
				require.True(s.t, s.width.Send(r, s.now))
				s.requests[name] = r
			case again.IsZero():
				waiting++
			default:
				waiting, until = waiting+1, fmt.Sprintf(" for at most %s", again.Sub(s.now))
			}
			continue
		case "answered":
			s.width.Answered(s.known(r, name), s.now)
		case "refused":
			s.width.Refused(s.known(r, name), s.now, after)
		case "lost":
			s.width.Lost(s.known(r, name))
		default:
			require.Fail(s.t, "no such event", event)
		}
	}
	out := fmt.Sprintf("-> %s: %d in flight", s.now.Sub(time.Unix(0, 0)), len(s.requests))
	if waiting > 0 {
		out += fmt.Sprintf(", %d wait%s", waiting, until)
	}
	if s.width.Narrow() {
		out += fmt.Sprintf(", limit %d", s.width.Limit())
	}

	return out + "\n"
}

func (s *story) known(r *width.Request, name string) *width.Request {
	s.t.Helper()
	require.NotNil(s.t, r, name)
	return r
}

// expand returns the subjects that a line names.
func expand(t *testing.T, words []string) (names []string) {
	t.Helper()
	for _, word := range words {
		from, to, several := strings.Cut(word, "..")
		if !several {
			names = append(names, word)
			continue
		}
		prefix := strings.TrimRight(from, "0123456789")
		first, err := strconv.Atoi(from[len(prefix):])
		require.NoError(t, err)
		last, err := strconv.Atoi(to)
		require.NoError(t, err)
		for n := first; n <= last; n++ {
			names = append(names, prefix+strconv.Itoa(n))
		}
	}
	return names
}
