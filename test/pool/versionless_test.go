// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
		if w.Match(o) {
			w.Push(pooltest.Frame("ADDED", o.JSON()))
		}
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

// withVersionless runs a test on a server whose lists have no version, with a
// lease on the objects that a key selects.
func withVersionless(t *testing.T, source *versionlessServer, key informerpool.Key,
	test func(*testing.T, *pooltest.Server, *informerpool.Lease, *pooltest.Recorder)) {
	t.Helper()
	pooltest.Bubble(t, func(o *informerpool.Options) {
		source.Server = o.Source.(*pooltest.Server)
		source.NoStream = true
		o.Source = slowWatches{source}
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1, "tier=gold")
		s.Put("ns", "b", 1, "tier=gold")
		l := pooltest.AcquireSynced(t, p, key)
		r := pooltest.Record(t, p, l)
		pooltest.After(time.Second)
		require.ElementsMatch(t, []string{"Added ns/a@101", "Added ns/b@102"}, r.Take())
		test(t, s, l, r)
		require.Equal(t, s.State(pooltest.Matcher(key)), pooltest.Contents(t, l))
		require.Equal(t, s.State(pooltest.Matcher(key)), r.State())
		require.Zero(t, l.Status().Rollbacks)
		r.RequireSound(t)
	})
}

// TestHazardNewestObjectIsOlderThanTheWatch: a watch without a version begins
// with the objects that exist. What was created and deleted before it is newer
// than each of them, and a watch from the version of the newest one would show
// it once more.
func TestHazardNewestObjectIsOlderThanTheWatch(t *testing.T) {
	for name, row := range map[string]struct {
		ends  func(*pooltest.Server) // the beginning of the watch
		event []string
		lists int64 // after an interruption
	}{
		"a bookmark without a version": {ends: func(s *pooltest.Server) {
			pooltest.Push(s, "BOOKMARK", `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{}}`)
		}, lists: 2},
		"a delete at the version of the last state": {ends: func(s *pooltest.Server) {
			last := s.Objects[named("b")]
			s.Deafly(func() { s.Delete("ns", "b") })
			pooltest.Push(s, "DELETED", string(last.JSON()))
		}, event: []string{"Deleted ns/b@102"}, lists: 2},
		"a change": {ends: func(s *pooltest.Server) { s.Put("ns", "a", 2) }, event: []string{"Updated ns/a@105"}},
	} {
		t.Run(name, func(t *testing.T) {
			withVersionless(t, &versionlessServer{}, pooltest.Everything, func(t *testing.T, s *pooltest.Server,
				l *informerpool.Lease, r *pooltest.Recorder) {
				s.Put("ns", "x", 1)
				pooltest.After(time.Second)
				s.Delete("ns", "x")
				pooltest.After(time.Second)
				require.Equal(t, []string{"Added ns/x@103", "Deleted ns/x@104"}, r.Take())
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(verb string) error {
						if verb == "watch" {
							s.Heal()
							return apierrors.NewResourceExpired("too old resource version")
						}
						return nil
					}
				})
				s.Cut(io.EOF)
				pooltest.After(time.Minute)
				row.ends(s)
				pooltest.After(time.Second)
				require.Equal(t, row.event, r.Take())
				lists := l.Status().Lists
				s.Cut(io.EOF)
				pooltest.After(time.Minute)
				require.Empty(t, r.Take())
				require.Equal(t, lists+row.lists, l.Status().Lists)
			})
		})
	}
}

// TestHazardObjectEndsBehindTheBeginningOfAWatch: the list behind the beginning
// shows that an object is gone, and the watch, which is read afterwards, shows
// its last states. They are not delivered behind its delete. An object that is
// selected again later is.
func TestHazardObjectEndsBehindTheBeginningOfAWatch(t *testing.T) {
	golden := pooltest.Everything
	golden.LabelSelector = "tier=gold"
	for name, row := range map[string]struct {
		key    informerpool.Key
		behind func(*pooltest.Server)
		want   []string
	}{
		"deleted": {pooltest.Everything, func(s *pooltest.Server) { s.Delete("ns", "b") },
			[]string{"Deleted ns/b@102"}},
		"changed and deleted": {pooltest.Everything, func(s *pooltest.Server) {
			s.Put("ns", "b", 2)
			s.Delete("ns", "b")
		}, []string{"Deleted ns/b@102"}},
		"replaced": {pooltest.Everything, func(s *pooltest.Server) {
			s.Put("ns", "b", 2)
			s.Delete("ns", "b")
			time.AfterFunc(time.Second, func() { s.Put("ns", "b", 3) })
		}, []string{"Deleted ns/b@102", "Added ns/b@105"}},
		"selected no longer": {golden, func(s *pooltest.Server) { s.Put("ns", "b", 2, "tier=tin") },
			[]string{"Deleted ns/b@102"}},
		"changed and selected no longer": {golden, func(s *pooltest.Server) {
			s.Put("ns", "b", 2)
			s.Put("ns", "b", 2, "tier=tin")
		}, []string{"Deleted ns/b@102"}},
		"selected again": {golden, func(s *pooltest.Server) {
			s.Put("ns", "b", 2, "tier=tin")
			time.AfterFunc(time.Second, func() { s.Put("ns", "b", 3, "tier=gold") })
		}, []string{"Deleted ns/b@102", "Added ns/b@104"}},
	} {
		for _, version := range []string{"", "0"} {
			t.Run(fmt.Sprintf("%s %q", name, version), func(t *testing.T) {
				source := &versionlessServer{version: version}
				withVersionless(t, source, row.key, func(t *testing.T, s *pooltest.Server,
					_ *informerpool.Lease, r *pooltest.Recorder) {
					source.behind = func() { row.behind(s) }
					s.Cut(io.EOF)
					pooltest.After(time.Minute)
					require.Equal(t, row.want, r.Take())
				})
			})
		}
	}
}

// TestHazardRiderMovesToAnInformerThatHasShownNoVersion: the version of a list
// would show whether an informer has shown a delete that another one has
// delivered. Without it, the other one is continued.
func TestHazardRiderMovesToAnInformerThatHasShownNoVersion(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.Source = &oddServer{Server: o.Source.(*pooltest.Server), place: "end of a streamed list"}
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "x", 1)
		named := pooltest.In("ns")
		named.FieldSelector = "metadata.name=x"
		wider := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		rider := pooltest.AcquireSynced(t, p, named)
		require.Equal(t, pooltest.In("ns"), rider.Status().Key)
		r := pooltest.Record(t, p, rider)
		pooltest.After(time.Second)
		s.Set(func(s *pooltest.Server) {
			for w := range s.Watchers {
				if w.Key == pooltest.Everything { // it is late
					delete(s.Watchers, w)
				}
			}
		})
		s.Delete("ns", "x")
		pooltest.After(time.Second)
		require.Equal(t, []string{"Added ns/x@101", "Deleted ns/x@102"}, r.Take())
		wider.Release()
		pooltest.After(time.Minute)
		require.Empty(t, r.Take())
		require.Empty(t, pooltest.Contents(t, rider))
		s.Put("ns", "x", 2)
		pooltest.After(time.Second)
		require.Equal(t, []string{"Added ns/x@103"}, r.Take())
		r.RequireSound(t)
	})
}
