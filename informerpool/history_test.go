// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
)

// restore returns a server to an earlier state. The next version is bump later
// than it would otherwise be; watches from before fail with 410.
func (s *modelServer) restore(before *modelServer, bump uint64) {
	s.mu.Lock()
	s.objects = maps.Clone(before.objects)
	s.rv, s.log = before.rv+bump, nil
	if bump > 0 {
		s.compacted = s.rv
	}
	clear(s.snapshots)
	s.mu.Unlock()
	s.cut(io.ErrUnexpectedEOF)
}

// TestHazardRestoreWithBumpedRevision is etcd's documented restore: the
// versions of the objects go back, that of the server does not.
func TestHazardRestoreWithBumpedRevision(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			var reported []informerpool.Key
			bubble(t, func(o *informerpool.Options) {
				o.PagedLists, o.PageSize = paged, 2
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "same", 1)
				s.put("ns", "older", 1)
				s.put("ns", "replaced", 1)
				before := snapshot(s)
				s.put("ns", "older", 2)
				s.put("ns", "lost", 1)
				s.delete("ns", "replaced")
				s.put("ns", "replaced", 2) // another uid
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				s.restore(before, 1_000_000_000)
				after(5 * time.Second)
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, s.state(nil), r.told())
				require.ElementsMatch(t, []string{
					"Updated ns/older@102", "Deleted ns/lost@105", "Deleted ns/replaced@107", "Added ns/replaced@103",
				}, r.take())
				require.Equal(t, []informerpool.Key{everything}, reported)
				r.requireSound(t)
			})
		})
	}
}

// TestHazardRollbackThatAListMeets: the history question never gets to see it.
func TestHazardRollbackThatAListMeets(t *testing.T) {
	for name, meet := range map[string]error{
		"410": apierrors.NewResourceExpired("too old"), "404": apierrors.NewNotFound(widgets.GroupResource(), ""),
	} {
		t.Run(name, func(t *testing.T) {
			rollbacks := 0
			bubble(t, func(o *informerpool.Options) { o.OnRollback = func(informerpool.Key) { rollbacks++ } }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "backup", 1)
				before := snapshot(s)
				for i := range 20 {
					s.put("ns", "lost", i)
				}
				l := acquireSynced(t, p, everything)
				first := l.Status()
				refused := false
				s.set(func(s *modelServer) {
					s.fail = func(string) error {
						if !refused {
							refused = true
							return meet
						}
						return nil
					}
				})
				s.restore(before, 0)
				after(5 * time.Second)
				require.Equal(t, s.state(nil), contents(t, l))
				s.put("ns", "real", 1) // its version was another object's in the lost history
				after(time.Second)
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, 1, rollbacks)
				require.Equal(t, first.Epoch, l.Status().Epoch)
				require.Equal(t, first.History+1, l.Status().History, "the versions of before cannot be compared")
			})
		})
	}
}

// TestHazardOneReadShowsOneHistory: while a list of another history arrives,
// reads and handlers see the old history as a whole.
func TestHazardOneReadShowsOneHistory(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "z", 1)
		before := snapshot(s)
		s.put("ns", "z", 2)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		r.epochs = true
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		old := contents(t, l)
		s.restore(before, 1000)
		s.put("ns", "a", 1) // comes first, and is newer than any cached object
		s.compact()
		page, more := 0, hang()
		s.set(func(s *modelServer) {
			s.fail = func(string) error {
				if page++; page > 2 {
					<-more
				}
				return nil
			}
		})
		after(time.Minute)
		require.Equal(t, old, contents(t, l))
		require.Empty(t, r.take())
		close(more)
		after(time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestHazardContentChangesUnderTheSameVersion: through a default that was added
// to a definition, or another conversion.
func TestHazardContentChangesUnderTheSameVersion(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "b", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		r.epochs = true
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.set(func(s *modelServer) {
			for k, o := range s.objects {
				if k.Name == "a" {
					o.value = 7
					s.objects[k] = o
				}
			}
			s.rv++
		})
		s.compact()
		s.cut(io.ErrUnexpectedEOF)
		after(time.Minute)
		var w widget
		require.NoError(t, l.GetInto("ns", "a", &w))
		require.Equal(t, 7, w.Spec.Value)
		require.Equal(t, []string{"Updated ns/a@101"}, r.take())
	})
}

// TestHazardVersionsThatAreNoNumbers: such versions are compared for equality
// only.
func TestHazardVersionsThatAreNoNumbers(t *testing.T) {
	rollbacks := 0
	bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		var version atomic.Value
		version.Store("zz")
		p, err := informerpool.New(informerpool.Options{
			Source: rewriting{s, func(b []byte) []byte {
				return []byte(strings.NewReplacer(`"resourceVersion":"101"`, `"resourceVersion":"`+version.Load().(string)+`"`, `"resourceVersion":"102"`, `"resourceVersion":"`+version.Load().(string)+`"`).Replace(string(b)))
			}}, PagedLists: true, OnRollback: func(informerpool.Key) { rollbacks++ },
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.put("ns", "a", 1)
		s.fail = func(verb string) error {
			if verb == "watch" {
				return apierrors.NewResourceExpired("no history")
			}
			return nil
		}
		l := acquireSynced(t, p, everything)
		require.Equal(t, map[string]string{"ns/a": "a-1@zz"}, contents(t, l))
		s.put("ns", "a", 2)
		version.Store("aa")
		after(time.Minute)
		require.Equal(t, map[string]string{"ns/a": "a-1@aa"}, contents(t, l))
		require.Zero(t, rollbacks)
	})
}

// rewriting changes the bodies of lists.
type rewriting struct {
	*modelServer
	change func([]byte) []byte
}

func (r rewriting) List(ctx context.Context, q informerpool.Request) (io.ReadCloser, error) {
	body, err := r.modelServer.List(ctx, q)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(body)
	return io.NopCloser(strings.NewReader(string(r.change(b)))), err
}

// TestListKindOfADefinitionsOwn: definitions may name their list kind freely.
// An empty list of such a kind is trusted once lists of that kind have held the
// kind.
func TestListKindOfADefinitionsOwn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		p, err := informerpool.New(informerpool.Options{
			Source: rewriting{s, func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte("WidgetList"), []byte("WidgetCollection"))
			}},
			PagedLists: true,
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		require.Equal(t, s.state(nil), contents(t, l))
		s.delete("ns", "a")
		s.compact()
		s.cut(io.ErrUnexpectedEOF)
		after(time.Minute)
		require.Empty(t, contents(t, l))
		require.NoError(t, l.Trust(0))
	})
}

// ageless is a server whose lists have no version. A watch without a version
// begins with the current objects, the newest first.
type ageless struct{ rewriting }

func (a ageless) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if v := r.Options.ResourceVersion; r.Options.SendInitialEvents != nil || v != "" && v != "0" {
		return a.modelServer.Watch(ctx, r)
	}
	a.mu.Lock()
	r.Options.ResourceVersion = strconv.FormatUint(a.rv, 10)
	objects := slices.SortedFunc(maps.Values(a.objects), func(x, y modelObject) int { return cmp.Compare(y.rv, x.rv) })
	a.mu.Unlock()
	body, err := a.modelServer.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	var first bytes.Buffer
	for _, o := range objects {
		first.Write(frame("ADDED", o.json()))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&first, body), body}, nil
}

// TestHazardListsWithoutAVersion: the initial objects of a watch without a
// version have no order, which proves nothing about the server's history.
func TestHazardListsWithoutAVersion(t *testing.T) {
	for _, version := range []string{"", "0"} {
		bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
			rollbacks := 0
			p, err := informerpool.New(informerpool.Options{
				Source: ageless{rewriting{s, func(b []byte) []byte {
					return regexp.MustCompile(`"resourceVersion":"\d+","continue"`).ReplaceAll(b, []byte(`"resourceVersion":"`+version+`","continue"`))
				}}},
				PagedLists: true, OnRollback: func(informerpool.Key) { rollbacks++ },
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			for _, name := range []string{"a", "b", "c", "d"} {
				s.put("ns", name, 1)
			}
			l := acquireSynced(t, p, everything)
			synctest.Wait()
			lists := s.count("list")
			after(time.Minute)
			require.Equal(t, lists, s.count("list"))

			s.cut(io.ErrUnexpectedEOF) // within the initial objects
			s.delete("ns", "b")
			s.put("ns", "a", 2)
			after(time.Minute)
			require.Equal(t, s.state(nil), contents(t, l))

			s.put("ns", "c", 2)
			s.cut(io.ErrUnexpectedEOF)
			s.delete("ns", "d")
			after(time.Minute)
			require.Equal(t, s.state(nil), contents(t, l))
			require.Zero(t, rollbacks)
			require.NoError(t, l.Trust(0))
		})
	}
}

// TestHazardRefusedQuestion: whatever a server answers to the history question,
// the cache follows the server.
func TestHazardRefusedQuestion(t *testing.T) {
	refusals := map[string]error{
		"400": apierrors.NewBadRequest("no"), "401": apierrors.NewUnauthorized("no"),
		"403": apierrors.NewForbidden(widgets.GroupResource(), "fleetcache-history", errors.New("no")),
		"404": apierrors.NewNotFound(widgets.GroupResource(), "fleetcache-history"),
		"405": apierrors.NewMethodNotSupported(widgets.GroupResource(), "watch"),
		"406": apierrors.NewGenericServerResponse(406, "watch", widgets.GroupResource(), "", "", 0, true),
		"410": apierrors.NewResourceExpired("no"),
		"415": apierrors.NewGenericServerResponse(415, "watch", widgets.GroupResource(), "", "", 0, true),
		"418": apierrors.NewGenericServerResponse(418, "watch", widgets.GroupResource(), "", "", 0, true),
		"422": apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
		"429": apierrors.NewTooManyRequests("no", 1),
		"500": apierrors.NewInternalError(errors.New("no")),
		"501": apierrors.NewGenericServerResponse(501, "watch", widgets.GroupResource(), "", "", 0, true),
		"503": apierrors.NewServiceUnavailable("no"), "504": apierrors.NewTimeoutError("no", 1),
		"no end": nil, // a server that treats it as a plain watch
	}
	for name, refusal := range refusals {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " paged ", paged), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
					asked := 0
					source := questioned{s, func(r informerpool.Request, watch bool) (bool, error) {
						question := strings.HasPrefix(r.Options.FieldSelector, "metadata.name=fleetcache-history") || !watch && r.Options.Limit == 1
						if !question || refusal == nil && !watch {
							return false, nil
						}
						asked++
						return true, refusal
					}}
					p, err := informerpool.New(informerpool.Options{Source: source, PagedLists: paged})
					require.NoError(t, err)
					defer func() { require.NoError(t, p.Close(context.Background())) }()
					s.put("ns", "a", 1)
					l := acquireSynced(t, p, everything)
					after(time.Minute)
					s.cut(io.ErrUnexpectedEOF)
					s.put("ns", "a", 2)
					after(90 * time.Second)
					require.Equal(t, s.state(nil), contents(t, l))
					require.Equal(t, informerpool.StateSynced, l.Status().State)
					require.NoError(t, l.Status().LastError)
					if refusal != nil {
						require.Positive(t, asked)
					}
					bound := 10
					if apierrors.IsTooManyRequests(refusal) {
						// Its back-off grows only to four seconds, and each
						// wait is at least half of that: a server over its
						// limit may well serve the next request. The list comes
						// after thirty seconds.
						bound = 30/2 + 5
					}
					require.Less(t, asked, bound, "no busy loop")
				})
			})
		}
	}
}

// questioned answers some requests in place of the server; a nil error is a
// watch that carries nothing.
type questioned struct {
	*modelServer
	answer func(r informerpool.Request, watch bool) (bool, error)
}

func (q questioned) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if mine, err := q.answer(r, false); mine {
		return nil, err
	}
	return q.modelServer.List(ctx, r)
}

func (q questioned) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	switch mine, err := q.answer(r, true); {
	case mine && err == nil:
		w := &modelWatch{ctx: ctx, server: q.modelServer, news: make(chan struct{}, 1)}
		time.AfterFunc(time.Duration(*r.Options.TimeoutSeconds)*time.Second, func() { w.end(io.EOF) })
		return w, nil
	case mine:
		return nil, err
	}
	return q.modelServer.Watch(ctx, r)
}

// TestHazardUserHearsOfTheResourceNotOfTheQuestion: a revoked permission is
// reported for the user's own request.
func TestHazardUserHearsOfTheResourceNotOfTheQuestion(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		var denied atomic.Bool
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			name, _, _ := strings.Cut(strings.TrimPrefix(r.Options.FieldSelector, "metadata.name="), ",")
			return denied.Load(), apierrors.NewForbidden(widgets.GroupResource(), name, errors.New("no"))
		}}
		p, err := informerpool.New(informerpool.Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		l := acquireSynced(t, p, everything)
		denied.Store(true)
		s.cut(io.ErrUnexpectedEOF)
		after(time.Minute)
		require.True(t, apierrors.IsForbidden(l.Status().LastError))
		require.NotContains(t, l.Status().LastError.Error(), "fleetcache")
	})
}

// TestHazardRightsLimitedByName: the history question uses the selector that
// the permission is for.
func TestHazardRightsLimitedByName(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			return r.Options.FieldSelector != "metadata.name=a", apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
		}}
		p, err := informerpool.New(informerpool.Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		k := everything
		k.FieldSelector = "metadata.name=a"
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, k)
		after(time.Minute)
		s.cut(io.ErrUnexpectedEOF)
		s.put("ns", "a", 2)
		after(5 * time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Zero(t, l.Status().Resyncs, "it was allowed to ask, and resumed")
		require.NoError(t, l.Status().LastError)
	})
}

// TestHazardRestoreMetByAnInformerThatLags: nothing in its own store
// contradicts the restored list, but another informer of the resource has shown
// the lost changes. Afterwards both are in the new history, which has a single
// number.
func TestHazardRestoreMetByAnInformerThatLags(t *testing.T) {
	for _, smaller := range []bool{false, true} {
		t.Run(fmt.Sprint("beside a smaller one ", smaller), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "o", 1)
				if smaller {
					s.put("elsewhere", "p", 1)
				}
				narrow := everything
				narrow.Namespace = "ns"
				ahead, lagging := acquireSynced(t, p, narrow), acquireSynced(t, p, everything)
				unreachable := func(k informerpool.Key) {
					s.set(func(s *modelServer) {
						s.refuse = func(of informerpool.Key) error {
							if of.Namespace == k.Namespace {
								return errUnreachable
							}
							return nil
						}
					})
				}
				before := snapshot(s)
				unreachable(everything)
				s.cut(io.ErrUnexpectedEOF)
				after(2 * time.Second)
				s.put("ns", "o", 2)
				after(time.Second)
				unreachable(narrow)
				s.restore(before, 1000)
				after(time.Minute)
				require.Equal(t, 1, lagging.Status().History)
				require.EqualValues(t, 1, lagging.Status().Rollbacks)
				s.set(func(s *modelServer) { s.refuse = nil })
				after(time.Minute)
				require.Equal(t, 1, ahead.Status().History)
				require.NoError(t, ahead.Trust(0))
			})
		})
	}
}
