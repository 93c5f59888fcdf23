// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// unversioned is an aggregated API that gives neither its lists nor its objects
// a version. Its watches begin with the objects that exist.
type unversioned struct {
	*pooltest.Server

	strips  func([]byte) []byte       // a list, or a frame
	watches func() (io.Reader, error) // if set: what a watch consists of
	plain   bool                      // it takes the request for a streamed list for one of a watch
	log     fleettest.Logbook
	pool    *informerpool.Pool
	lease   *informerpool.Lease
	events  *pooltest.Recorder
}

var anyUID = regexp.MustCompile(`"uid":"[^"]*"`)

func withoutVersion(b []byte) []byte { return anyVersion.ReplaceAll(b, []byte(`"resourceVersion":""`)) }

func withoutVersionAndUID(b []byte) []byte {
	return anyUID.ReplaceAll(withoutVersion(b), []byte(`"uid":""`))
}

// List implements informerpool.Source.
func (s *unversioned) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	return rewriting{s.Server, s.stripped}.List(ctx, r)
}

func (s *unversioned) stripped(b []byte) []byte {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.strips(b)
}

// Watch implements informerpool.Source.
func (s *unversioned) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.plain && r.Options.SendInitialEvents != nil {
		r.Options.SendInitialEvents, r.Options.ResourceVersion = nil, ""
	}
	body, err := (&versionlessServer{Server: s.Server}).Watch(ctx, r)
	if err != nil || s.watches == nil || r.Options.SendInitialEvents != nil {
		return &oddBody{ReadCloser: body, change: s.stripped}, err
	}
	_ = body.Close()
	other, err := s.watches()
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(other, &pooltest.Stream{Ctx: ctx}), io.NopCloser(nil)}, err
}

// withUnversioned runs a test with a lease on such an API with an object a,
// whose value is 1.
func withUnversioned(t *testing.T, change func(*unversioned), test func(*testing.T, *unversioned)) {
	t.Helper()
	s := &unversioned{strips: withoutVersion, events: pooltest.NewRecorder()}
	s.events.Epochs = true // versions say nothing
	pooltest.Bubble(t, func(o *informerpool.Options) {
		s.Server = o.Source.(*pooltest.Server)
		s.NoStream = true
		s.Put("ns", "a", 1)
		o.Source, o.Logger = s, s.log.Logger()
		if change != nil {
			change(s)
		}
	}, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.pool, s.lease = p, pooltest.Acquire(t, p, pooltest.Everything)
		require.NoError(t, s.lease.WaitForSync(ctx))
		pooltest.Subscribe(t, p, s.lease, s.events)
		synctest.Wait()
		require.Len(t, s.events.Take(), 1)
		test(t, s)
		s.events.RequireSound(t)
	})
}

// cached returns the values of the cached objects.
func (s *unversioned) cached(t *testing.T) map[string]string {
	t.Helper()
	objects, _, err := s.lease.List(informerpool.Query{})
	require.NoError(t, err)
	out := map[string]string{}
	for name, v := range values(t, objects) {
		out[name] = v[strings.LastIndex(v, " ")+1:]
	}
	return out
}

// TestObjectsWithoutVersionsHaveEventsByContent: what changed is what another
// list shows, and a watch says when to list.
func TestObjectsWithoutVersionsHaveEventsByContent(t *testing.T) {
	refuses := func(answer error) func(*unversioned) {
		return func(s *unversioned) {
			s.Fail = func(verb string) error {
				if verb == "watch" {
					return answer
				}
				return nil
			}
		}
	}
	resource := pooltest.Widgets.GroupResource()
	const soon, polled = 2 * time.Second, 41 * time.Second
	for name, row := range map[string]struct {
		change func(*unversioned)
		within time.Duration
		unique bool // its objects have uids
	}{
		"lists in pages":                     {nil, soon, true},
		"without uids":                       {func(s *unversioned) { s.strips = withoutVersionAndUID }, soon, false},
		"streams lists":                      {func(s *unversioned) { s.NoStream = false }, soon, true},
		"ignores what it is asked to stream": {func(s *unversioned) { s.plain = true }, soon, true},
		"version 0": {func(s *unversioned) {
			s.strips = func(b []byte) []byte { return anyVersion.ReplaceAll(b, []byte(`"resourceVersion":"0"`)) }
		}, soon, true},
		"cannot be watched":    {refuses(apierrors.NewMethodNotSupported(resource, "watch")), polled, true},
		"may not be watched":   {refuses(apierrors.NewForbidden(resource, "", nil)), polled, true},
		"no watch has a place": {refuses(apierrors.NewBadRequest("resourceVersion")), polled, true},
		"watches are silent":   {func(s *unversioned) { s.Deaf = true }, polled, true},
		"watches fail": {func(s *unversioned) {
			s.watches = func() (io.Reader, error) { return nil, io.EOF }
		}, polled, true},
	} {
		t.Run(name, func(t *testing.T) {
			version := "@"
			if name == "version 0" {
				version = "@0"
			}
			withUnversioned(t, row.change, func(t *testing.T, s *unversioned) {
				is := func(want ...string) {
					t.Helper()
					pooltest.After(row.within)
					got := s.events.Take()
					for i := range got {
						got[i] = strings.TrimSuffix(got[i], version)
					}
					require.ElementsMatch(t, want, got)
				}
				s.Put("ns", "a", 2)
				s.Put("ns", "b", 1)
				is("Updated ns/a", "Added ns/b")
				s.Put("ns", "a", 2)
				is()
				pooltest.After(time.Hour)
				is()
				s.Put("ns", "a", 3, "x=y")
				is("Updated ns/a")
				s.Delete("ns", "b")
				is("Deleted ns/b")
				s.Delete("ns", "a")
				s.Put("ns", "a", 3)
				if row.unique {
					is("Deleted ns/a", "Added ns/a")
				} else {
					is("Updated ns/a")
				}
				require.Equal(t, map[string]string{"ns/a": "3"}, s.cached(t))

				status := s.lease.Status()
				require.True(t, status.Polling)
				require.True(t, status.Unversioned)
				require.Equal(t, informerpool.StateSynced, status.State)
				require.NoError(t, status.LastError)
				require.NoError(t, s.lease.Trust(0))
				require.Zero(t, status.Rejected+status.Rollbacks)
				require.Len(t, s.log.Lines, 1, "%v", s.log.Lines)
				require.Contains(t, s.log.Lines[0], "Objects have no resourceVersion")
				require.WithinDuration(t, time.Now(), status.LastSeen, 41*time.Second, "the last list")
			})
		})
	}
}

// TestHazardLateEventOfAnObjectWithoutAVersion: a watch shows states that a
// list has passed. Nothing tells them from new ones, so they are not applied.
func TestHazardLateEventOfAnObjectWithoutAVersion(t *testing.T) {
	withUnversioned(t, func(s *unversioned) { s.Late = 7 * time.Second }, func(t *testing.T, s *unversioned) {
		shown := "1"
		for i := range 300 {
			if i < 200 {
				s.Put("ns", "a", i+2)
			}
			if i%20 == 7 {
				s.Put("ns", "b", i)
				s.Delete("ns", "b")
			}
			pooltest.After(time.Second)
			now := s.cached(t)["ns/a"]
			require.True(t, len(now) > len(shown) || len(now) == len(shown) && now >= shown, "%s after %s", now, shown)
			shown = now
		}
		require.Equal(t, map[string]string{"ns/a": "201"}, s.cached(t))
	})
}

// TestHazardWatchWithoutVersionsNeverAgreesWithTheLists: a list that a watch
// asks for and that changes nothing is followed by a pause. Lists stay as rare
// as without a watch, or, if there is something to find, four times as many.
func TestHazardWatchWithoutVersionsNeverAgreesWithTheLists(t *testing.T) {
	other := func(frame string, object string) func() (io.Reader, error) {
		return func() (io.Reader, error) { return bytes.NewReader(pooltest.Frame(frame, []byte(object))), nil }
	}
	const hour = int(time.Hour / time.Second)
	for name, row := range map[string]struct {
		watches func() (io.Reader, error)
		changes bool
		lists   int
	}{
		"another content":  {other("ADDED", pooltest.WidgetWith(`"namespace":"ns","name":"a"`)), false, 200},
		"an unknown name":  {other("MODIFIED", pooltest.WidgetWith(`"namespace":"ns","name":"z"`)), false, 200},
		"a delete":         {other("DELETED", pooltest.WidgetWith(`"namespace":"ns","name":"a"`)), false, 200},
		"a broken object":  {other("ADDED", pooltest.WidgetWith(`"namespace":"ns","name":"a","labels":7`)), false, 200},
		"no object":        {other("ADDED", `7`), false, 200},
		"an error":         {other("ERROR", `{"kind":"Status","code":410}`), false, 200},
		"constant changes": {nil, true, 700},
	} {
		t.Run(name, func(t *testing.T) {
			withUnversioned(t, func(s *unversioned) { s.watches = row.watches }, func(t *testing.T, s *unversioned) {
				lists := s.Count("list")
				for i := range hour {
					if row.changes {
						s.Put("ns", "a", i+2)
					}
					pooltest.After(time.Second)
				}
				require.LessOrEqual(t, s.Count("list")-lists, row.lists)
				require.GreaterOrEqual(t, s.Count("list")-lists, 80)
				require.LessOrEqual(t, len(s.log.Lines), 10, "%v", s.log.Lines)
				pooltest.After(time.Minute)
				require.NoError(t, s.lease.Trust(0))
				require.Equal(t, row.changes, s.events.Count() > 0)
			})
		})
	}
}

// TestObjectsGetVersionsAndLoseThem: the resource is watched as long as there
// are versions, and no object is lost in between.
func TestObjectsGetVersionsAndLoseThem(t *testing.T) {
	withUnversioned(t, nil, func(t *testing.T, s *unversioned) {
		all := func(b []byte) []byte { return b }
		is := func(within time.Duration, polled bool, want string) {
			t.Helper()
			pooltest.After(within)
			require.Equal(t, []string{want}, s.events.Take())
			status := s.lease.Status()
			require.Equal(t, [2]bool{polled, polled}, [2]bool{status.Polling, status.Unversioned})
			require.Zero(t, status.Unknown)
		}
		version := uint64(101)
		for round := range 3 {
			s.Set(func(*pooltest.Server) { s.strips = all })
			is(41*time.Second, false, fmt.Sprint("Updated ns/a@", version))
			version = s.Put("ns", "a", round+2)
			is(0, false, fmt.Sprint("Updated ns/a@", version))

			s.Set(func(*pooltest.Server) { s.strips = withoutVersion })
			version = s.Put("ns", "a", round+2)
			is(2*time.Second, true, "Updated ns/a@")
			pooltest.After(10 * time.Minute)
		}
		require.Zero(t, s.lease.Status().Rollbacks)
		require.LessOrEqual(t, len(s.log.Lines), 10, "%v", s.log.Lines)
	})
}

// TestSomeObjectsHaveVersions: an object of a server that keeps versions is
// served beside one of a server that does not.
func TestSomeObjectsHaveVersions(t *testing.T) {
	list := regexp.MustCompile(`"metadata":{"resourceVersion":"\d+","continue"`)
	far := regexp.MustCompile(`("name":"far","namespace":"ns",)"resourceVersion":"\d+"`)
	some := func(b []byte) []byte {
		b = list.ReplaceAll(b, []byte(`"metadata":{"continue"`))
		return far.ReplaceAll(b, []byte(`$1"resourceVersion":""`))
	}
	for _, first := range []string{"far", "near"} {
		t.Run(first+" is there first", func(t *testing.T) {
			s := &unversioned{strips: some, events: pooltest.NewRecorder()}
			pooltest.Bubble(t, func(o *informerpool.Options) {
				s.Server = o.Source.(*pooltest.Server)
				s.NoStream = true
				o.Source, o.Logger = s, s.log.Logger()
			}, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
				s.events.Epochs = true
				s.lease = pooltest.AcquireSynced(t, p, pooltest.Everything) // nothing is there
				pooltest.Subscribe(t, p, s.lease, s.events)
				pooltest.After(time.Minute)
				s.Put("ns", first, 1)
				pooltest.After(2 * time.Second)
				for i := range 5 {
					s.Put("ns", "near", i+2)
					s.Put("ns", "far", i+2)
					pooltest.After(10 * time.Second)
					value := fmt.Sprint(i + 2)
					require.Equal(t, map[string]string{"ns/far": value, "ns/near": value}, s.cached(t))
				}
				s.Delete("ns", "near")
				s.Delete("ns", "far")
				pooltest.After(41 * time.Second)
				require.Empty(t, s.cached(t))
				require.Empty(t, s.events.State())
				s.events.RequireSound(t)
				require.Zero(t, s.lease.Status().Rejected+s.lease.Status().Rollbacks)
				require.LessOrEqual(t, len(s.log.Lines), 2, "%v", s.log.Lines)
			})
		})
	}
}

// TestStateWithoutVersionsIsNotKept: nothing can continue it.
func TestStateWithoutVersionsIsNotKept(t *testing.T) {
	withUnversioned(t, nil, func(t *testing.T, s *unversioned) {
		pooltest.After(time.Minute)
		_, ok := s.pool.Capture(pooltest.Everything, informerpool.Mark{})
		require.False(t, ok)
	})
}
