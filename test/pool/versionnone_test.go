// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// oddServer shows an invalid version in one place, and does not accept it: a
// watch from it fails with refusal or, if that is nil, ends at once.
type oddServer struct {
	*pooltest.Server

	version string
	place   string
	refusal error
	healed  bool
}

var (
	anyVersion    = regexp.MustCompile(`"resourceVersion":"\d+"`)
	objectVersion = regexp.MustCompile(`"name":"odd","namespace":"ns","resourceVersion":"\d+"`)
)

func (s *oddServer) odd(in []byte, place string) []byte {
	if s.healed || place != s.place {
		return in
	}
	version := fmt.Appendf(nil, `"resourceVersion":%q`, s.version)
	if strings.HasPrefix(place, "object") {
		return objectVersion.ReplaceAll(in, append([]byte(`"name":"odd","namespace":"ns",`), version...))
	}
	return anyVersion.ReplaceAll(in, version)
}

// List implements informerpool.Source.
func (s *oddServer) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Server.List(ctx, r)
	if err != nil {
		return nil, err
	}
	doc, err := io.ReadAll(body)
	head, items, _ := bytes.Cut(doc, []byte(`"items"`))
	doc = append(append(bytes.Clone(s.odd(head, "list")), []byte(`"items"`)...), s.odd(items, "object of a list")...)
	return io.NopCloser(bytes.NewReader(doc)), err
}

// Watch implements informerpool.Source.
func (s *oddServer) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	from := r.Options.ResourceVersion
	_, err := strconv.ParseUint(from, 10, 64)
	odd := r.Options.SendInitialEvents == nil && from != "" && from != "0" &&
		(err != nil || strings.HasPrefix(from, "0"))
	if odd && s.refusal != nil {
		return nil, s.refusal
	} else if odd {
		return io.NopCloser(strings.NewReader("")), nil
	}
	body, err := (&versionlessServer{Server: s.Server}).Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	return &oddBody{ReadCloser: body, change: func(line []byte) []byte {
		switch {
		case bytes.Contains(line, []byte("initial-events-end")):
			return s.odd(line, "end of a streamed list")
		case bytes.Contains(line, []byte("BOOKMARK")):
			return s.odd(line, "bookmark")
		case r.Options.SendInitialEvents != nil && bytes.Contains(line, []byte("ADDED")):
			return s.odd(line, "object of a list")
		}
		return s.odd(line, "object of a watch")
	}}, nil
}

// oddBody changes the lines of a stream.
type oddBody struct {
	io.ReadCloser

	change func([]byte) []byte
	raw    []byte
	ready  []byte
}

// Read implements io.Reader.
func (b *oddBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		buf := make([]byte, 4096)
		n, err := b.ReadCloser.Read(buf)
		b.raw = append(b.raw, buf[:n]...)
		for {
			line, rest, whole := bytes.Cut(b.raw, []byte("\n"))
			if !whole {
				break
			}
			b.ready = append(append(b.ready, b.change(bytes.Clone(line))...), '\n')
			b.raw = rest
		}
		if err != nil && len(b.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// values are the objects' uids and values: their versions may be invalid.
func values(t *testing.T, objects []*informerpool.Object) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range objects {
		var w pooltest.Widget
		require.NoError(t, o.Into(&w))
		out[o.GetNamespace()+"/"+o.GetName()] = fmt.Sprint(o.GetUID(), " ", w.Spec.Value)
	}
	return out
}

func (s *oddServer) values() map[string]string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	out := map[string]string{}
	for k, o := range s.Objects {
		out[k.String()] = fmt.Sprint(o.UID, " ", o.Value)
	}
	return out
}

// TestHazardListsWithAVersionThatIsNone: an informer resumed for ever from a
// version that its server does not accept, and never listed again.
func TestHazardListsWithAVersionThatIsNone(t *testing.T) {
	refusals := map[string]error{
		"400":  apierrors.NewBadRequest("invalid resource version"),
		"422":  apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
		"410":  apierrors.NewResourceExpired("too old"),
		"500":  apierrors.NewInternalError(io.ErrUnexpectedEOF),
		"ends": nil,
	}
	for _, place := range []string{"list", "end of a streamed list", "bookmark", "object of a list",
		"object of a watch"} {
		for _, version := range []string{"abc", "12x", "18446744073709551616", "007", "-5", "+5", " ", " 12 ", "",
			"0", "1e3"} {
			if version == "" && strings.HasPrefix(place, "object") {
				continue // refused: TestRefusedObjectsAreUnknownNotAbsent
			}
			for name, refusal := range refusals {
				for _, paged := range []bool{false, true} {
					if paged == (place == "end of a streamed list") || !paged && place == "list" {
						continue
					}
					t.Run(fmt.Sprintf("%s %q %s paged %t", place, version, name, paged), func(t *testing.T) {
						testVersionThatIsNone(t, &oddServer{version: version, place: place, refusal: refusal}, paged)
					})
				}
			}
		}
	}
}

func testVersionThatIsNone(t *testing.T, source *oddServer, paged bool) {
	t.Helper()
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PagedLists, o.PageSize = paged, 2
		source.Server = o.Source.(*pooltest.Server)
		o.Source = source
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for _, name := range []string{"a", "odd", "z"} {
			s.Put("ns", name, 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		r.Epochs = true
		pooltest.Subscribe(t, p, l, r)
		equal := func(what string) {
			t.Helper()
			objects, _, err := l.List(informerpool.Query{})
			require.NoError(t, err)
			require.Equal(t, source.values(), values(t, objects), what)
			require.Len(t, r.State(), len(objects), what)
		}
		for round := range 4 {
			s.Put("ns", "odd", 10+round)
			s.Put("ns", fmt.Sprint("new", round), round)
			s.SendBookmark()
			pooltest.After(time.Minute)
			equal("live")
			s.Cut(io.ErrUnexpectedEOF)
			s.Delete("ns", fmt.Sprint("new", round))
			s.Put("ns", "a", 20+round)
			s.Delete("ns", "odd")
			s.Put("ns", "odd", 30+round)
			pooltest.After(time.Minute)
			equal("after an interruption")
			if st := l.Status(); st.State != informerpool.StateSynced {
				require.ErrorIs(t, st.LastError, informerpool.ErrVersion)
				require.Error(t, l.Trust(0))
			}
		}
		source.Mu.Lock()
		source.healed = true
		source.Mu.Unlock()
		s.Put("ns", "odd", 99)
		pooltest.After(time.Minute)
		equal("healed")
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		require.NoError(t, l.Status().LastError)
		require.NoError(t, l.Trust(0))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		lists := s.Count("list") + s.Count("stream")
		require.Less(t, lists, 120, "no busy loop")
		require.Zero(t, l.Status().Rollbacks)
		r.RequireSound(t)
	})
}

// TestHazardResumeIsRefused: the version is valid and the server answers the
// history question, but refuses every watch from it. A list may be the only
// request that works.
func TestHazardResumeIsRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"400": apierrors.NewBadRequest("no"),
		"422": apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
		"500": apierrors.NewInternalError(io.ErrUnexpectedEOF),
	} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " paged ", paged), func(t *testing.T) {
				pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists = paged }, func(t *testing.T,
					s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					s.Set(func(s *pooltest.Server) {
						s.Fail = func(verb string) error {
							if verb == "watch" {
								return refusal
							}
							return nil
						}
					})
					for round := range 3 {
						s.Cut(io.ErrUnexpectedEOF)
						s.Put("ns", "a", round)
						pooltest.After(2 * time.Minute)
						require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					}
					require.Less(t, s.Count("list")+s.Count("stream"), 60, "no busy loop")
				})
			})
		}
	}
}

// TestHazardResumeIsRefusedForLong: no watch can be resumed any more, for a
// reason that could be temporary and is not (a proxy lets none through, the
// server is too busy for them, the permission to watch was revoked), and lists
// succeed. Handlers must receive changes all the same.
func TestHazardResumeIsRefusedForLong(t *testing.T) {
	for _, code := range []int{401, 403, 408, 429, 501, 502, 503, 504} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(code, " paged ", paged), func(t *testing.T) {
				pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists = paged }, func(t *testing.T,
					s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					s.Set(func(s *pooltest.Server) {
						s.Fail = func(verb string) error {
							if verb == "watch" {
								return apierrors.NewGenericServerResponse(code, "watch",
									pooltest.Widgets.GroupResource(), "", "", 0, true)
							}
							return nil
						}
					})
					s.Cut(io.ErrUnexpectedEOF)
					s.Put("ns", "a", 2)
					pooltest.After(90 * time.Second)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l), "soon")
					for round := range 5 {
						s.Cut(io.ErrUnexpectedEOF)
						s.Put("ns", "a", 3+round)
						pooltest.After(6 * time.Minute)
						require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					}
					if paged {
						s.Set(func(s *pooltest.Server) { s.Requests = map[string]int{} })
						pooltest.After(time.Hour)
						require.Less(t, s.Count("list"), 1300, "no busy loop")
					}
					s.Heal()
					pooltest.After(time.Minute)
					require.NoError(t, l.Trust(time.Minute))
				})
			})
		}
	}
}
