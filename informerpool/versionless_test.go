// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// versionlessServer is an aggregated API whose lists have no version of their
// own. A watch without a version begins with all objects.
type versionlessServer struct {
	*modelServer

	version string
	before  func() // runs once, before a watch is open
	behind  func() // runs once, after it is open
}

var listVersion = regexp.MustCompile(`"metadata":{"resourceVersion":"\d+","continue"`)

// List implements informerpool.Source.
func (s *versionlessServer) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.modelServer.List(ctx, r)
	if err != nil {
		return nil, err
	}
	doc, err := io.ReadAll(body)
	doc = listVersion.ReplaceAll(doc, fmt.Appendf(nil, `"metadata":{"resourceVersion":%q,"continue"`, s.version))
	return io.NopCloser(bytes.NewReader(doc)), err
}

// Watch implements informerpool.Source.
func (s *versionlessServer) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	from := r.Options.ResourceVersion
	if r.Options.SendInitialEvents != nil {
		return s.modelServer.Watch(ctx, r)
	}
	runOnce(&s.before)
	defer runOnce(&s.behind)
	if from != "" && from != "0" {
		return s.modelServer.Watch(ctx, r)
	}
	if err := s.begin(ctx, "watch", r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &modelWatch{ctx: ctx, server: s.modelServer, match: matcher(r.Key), news: make(chan struct{}, 1), from: s.rv}
	for _, o := range s.objects {
		w.push(frame("ADDED", o.json()))
	}
	s.watchers[w] = struct{}{}
	return w, nil
}

func runOnce(f *func()) {
	if run := *f; run != nil {
		*f = nil
		run()
	}
}

// TestHazardDeletedBetweenAListWithoutAVersionAndItsWatch: the watch begins
// with the current objects, and does not mention one that was deleted before.
func TestHazardDeletedBetweenAListWithoutAVersionAndItsWatch(t *testing.T) {
	for _, version := range []string{"", "0"} {
		for name, between := range map[string]struct{ before, behind func(s *modelServer) }{
			"deleted": {
				before: func(s *modelServer) { s.delete("ns", "o1") },
			},
			"deleted and created": {
				before: func(s *modelServer) { s.delete("ns", "o1"); s.put("ns", "o1", 2); s.delete("ns", "o2") },
			},
			"changed before and behind the watch": {
				before: func(s *modelServer) { s.delete("ns", "o1"); s.put("ns", "new1", 1); s.put("ns", "new2", 1) },
				behind: func(s *modelServer) {
					s.delete("ns", "new1")
					s.delete("ns", "o2")
					s.put("ns", "o2", 2)
					s.delete("ns", "o3")
					s.put("ns", "o4", 2)
					s.put("ns", "o1", 3)
					s.put("ns", "new3", 1)
				},
			},
		} {
			t.Run(fmt.Sprintf("%q %s", version, name), func(t *testing.T) { testVersionless(t, version, between.before, between.behind) })
		}
	}
}

func testVersionless(t *testing.T, version string, before, behind func(*modelServer)) {
	t.Helper()
	source := &versionlessServer{version: version}
	bubble(t, func(o *informerpool.Options) {
		o.PageSize = 2
		source.modelServer = o.Source.(*modelServer)
		source.noStream = true
		o.Source = source
	}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		refill := func() {
			for i := range 6 {
				s.put("ns", fmt.Sprint("o", i), 1)
			}
			source.before = func() { before(s) }
			if behind != nil {
				source.behind = func() { behind(s) }
			}
		}
		refill()
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		for round := range 4 { // the first watch, and those after an interruption
			after(2 * time.Second)
			require.Nil(t, source.before, "a watch was opened")
			require.Equal(t, s.state(nil), contents(t, l), "round %d", round)
			require.Equal(t, s.state(nil), r.told(), "round %d", round)
			if round%2 == 1 {
				s.put("ns", "o0", round) // the watch shows a version, and ends after it
				after(0)
			}
			refill()
			after(0)
			s.cut(io.EOF)
		}
		after(2 * time.Second)
		s.put("ns", "last", 1)
		s.delete("ns", "o0")
		after(2 * time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Equal(t, s.state(nil), r.told())
		require.Zero(t, l.Status().Rollbacks)
		r.requireSound(t)
	})
}
