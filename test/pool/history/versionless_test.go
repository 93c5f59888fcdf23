// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package history_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// versionlessServer is an aggregated API whose lists have no version of their
// own. A watch without a version begins with all objects.
type versionlessServer struct {
	*pooltest.Server

	version string
	before  func() // runs once, before a watch is open
	behind  func() // runs once, after it is open
}

var listVersion = regexp.MustCompile(`"metadata":{"resourceVersion":"\d+","continue"`)

// List implements informerpool.Source.
func (s *versionlessServer) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Server.List(ctx, r)
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
		return s.Server.Watch(ctx, r)
	}
	runOnce(&s.before)
	defer runOnce(&s.behind)
	if from != "" && from != "0" {
		return s.Server.Watch(ctx, r)
	}
	if err := s.Begin(ctx, "watch", r); err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	w := &pooltest.Watch{Ctx: ctx, Server: s.Server, Match: pooltest.Matcher(r.Key), News: make(chan struct{}, 1),
		From: s.Version}
	for _, o := range s.Objects {
		w.Push(pooltest.Frame("ADDED", o.JSON()))
	}
	s.Watchers[w] = struct{}{}
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
		for name, between := range map[string]struct{ before, behind func(s *pooltest.Server) }{
			"deleted": {
				before: func(s *pooltest.Server) { s.Delete("ns", "o1") },
			},
			"deleted and created": {
				before: func(s *pooltest.Server) { s.Delete("ns", "o1"); s.Put("ns", "o1", 2); s.Delete("ns", "o2") },
			},
			"changed before and behind the watch": {
				before: func(s *pooltest.Server) {
					s.Delete("ns", "o1")
					s.Put("ns", "new1", 1)
					s.Put("ns", "new2", 1)
				},
				behind: func(s *pooltest.Server) {
					s.Delete("ns", "new1")
					s.Delete("ns", "o2")
					s.Put("ns", "o2", 2)
					s.Delete("ns", "o3")
					s.Put("ns", "o4", 2)
					s.Put("ns", "o1", 3)
					s.Put("ns", "new3", 1)
				},
			},
		} {
			t.Run(fmt.Sprintf("%q %s", version, name),
				func(t *testing.T) { testVersionless(t, version, between.before, between.behind) })
		}
	}
}

func testVersionless(t *testing.T, version string, before, behind func(*pooltest.Server)) {
	t.Helper()
	source := &versionlessServer{version: version}
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PageSize = 2
		source.Server = o.Source.(*pooltest.Server)
		source.NoStream = true
		o.Source = source
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		refill := func() {
			for i := range 6 {
				s.Put("ns", fmt.Sprint("o", i), 1)
			}
			source.before = func() { before(s) }
			if behind != nil {
				source.behind = func() { behind(s) }
			}
		}
		refill()
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		for round := range 4 { // the first watch, and those after an interruption
			pooltest.After(2 * time.Second)
			require.Nil(t, source.before, "a watch was opened")
			require.Equal(t, s.State(nil), pooltest.Contents(t, l), "round %d", round)
			require.Equal(t, s.State(nil), r.State(), "round %d", round)
			if round%2 == 1 {
				s.Put("ns", "o0", round) // the watch shows a version, and ends after it
				pooltest.After(0)
			}
			refill()
			pooltest.After(0)
			s.Cut(io.EOF)
		}
		pooltest.After(2 * time.Second)
		s.Put("ns", "last", 1)
		s.Delete("ns", "o0")
		pooltest.After(2 * time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, s.State(nil), r.State())
		require.Zero(t, l.Status().Rollbacks)
		r.RequireSound(t)
	})
}
