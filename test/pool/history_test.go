// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardRestoreWithBumpedRevision is etcd's documented restore: the
// versions of the objects go back, that of the server does not.
func TestHazardRestoreWithBumpedRevision(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			var reported []informerpool.Key
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.PagedLists, o.PageSize = paged, 2
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "same", 1)
				s.Put("ns", "older", 1)
				s.Put("ns", "replaced", 1)
				before := pooltest.Copy(s)
				s.Put("ns", "older", 2)
				s.Put("ns", "lost", 1)
				s.Delete("ns", "replaced")
				s.Put("ns", "replaced", 2) // another uid
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				r.Take()
				s.Restore(before, 1_000_000_000)
				pooltest.After(5 * time.Second)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, s.State(nil), r.State())
				require.ElementsMatch(t, []string{
					"Updated ns/older@102", "Deleted ns/lost@105", "Deleted ns/replaced@107", "Added ns/replaced@103",
				}, r.Take())
				require.Equal(t, []informerpool.Key{pooltest.Everything}, reported)
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardRollbackThatAListMeets: the history question never gets to see it.
func TestHazardRollbackThatAListMeets(t *testing.T) {
	for name, meet := range map[string]error{
		"410": apierrors.NewResourceExpired("too old"),
		"404": apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""),
	} {
		t.Run(name, func(t *testing.T) {
			rollbacks := 0
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.OnRollback = func(informerpool.Key) { rollbacks++ }
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "backup", 1)
				before := pooltest.Copy(s)
				for i := range 20 {
					s.Put("ns", "lost", i)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				first := l.Status()
				refused := false
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(string) error {
						if !refused {
							refused = true
							return meet
						}
						return nil
					}
				})
				s.Restore(before, 0)
				pooltest.After(5 * time.Second)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				s.Put("ns", "real", 1) // its version was another object's in the lost history
				pooltest.After(time.Second)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
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
	pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 1 }, func(t *testing.T,
		s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "z", 1)
		before := pooltest.Copy(s)
		s.Put("ns", "z", 2)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		r.Epochs = true
		pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		r.Take()
		old := pooltest.Contents(t, l)
		s.Restore(before, 1000)
		s.Put("ns", "a", 1) // comes first, and is newer than any cached object
		s.Compact()
		page, more := 0, pooltest.Hang()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(string) error {
				if page++; page > 2 {
					<-more
				}
				return nil
			}
		})
		pooltest.After(time.Minute)
		require.Equal(t, old, pooltest.Contents(t, l))
		require.Empty(t, r.Take())
		close(more)
		pooltest.After(time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardContentChangesUnderTheSameVersion: through a default that was added
// to a definition, or another conversion.
func TestHazardContentChangesUnderTheSameVersion(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		r.Epochs = true
		pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		r.Take()
		s.Set(func(s *pooltest.Server) {
			for k, o := range s.Objects {
				if k.Name == "a" {
					o.Value = 7
					s.Objects[k] = o
				}
			}
			s.Version++
		})
		s.Compact()
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Minute)
		var w pooltest.Widget
		require.NoError(t, l.GetInto("ns", "a", &w))
		require.Equal(t, 7, w.Spec.Value)
		require.Equal(t, []string{"Updated ns/a@101"}, r.Take())
	})
}

// TestHazardVersionsAreGivenTwice: a server that counts versions in its memory
// starts twice. The second time it comes to the cached version again, with other
// content, and no question about versions shows that.
func TestHazardVersionsAreGivenTwice(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		before := pooltest.Copy(s)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Restore(before, 0)
		pooltest.After(5 * time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))

		s.Set(func(s *pooltest.Server) {
			for k, o := range s.Objects {
				o.Value = 7
				s.Objects[k] = o
			}
		})
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(5 * time.Second)
		var w pooltest.Widget
		require.NoError(t, l.GetInto("ns", "a", &w))
		require.Equal(t, 7, w.Spec.Value)
	})
}

// TestHazardVersionsThatAreNoNumbers: such versions are compared for equality
// only.
func TestHazardVersionsThatAreNoNumbers(t *testing.T) {
	rollbacks := 0
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		var version atomic.Value
		version.Store("zz")
		p, err := informerpool.New(informerpool.Options{
			Source: rewriting{s, func(b []byte) []byte {
				return []byte(strings.NewReplacer(`"resourceVersion":"101"`,
					`"resourceVersion":"`+version.Load().(string)+`"`, `"resourceVersion":"102"`,
					`"resourceVersion":"`+version.Load().(string)+`"`).Replace(string(b)))
			}}, PagedLists: true, OnRollback: func(informerpool.Key) { rollbacks++ },
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.Put("ns", "a", 1)
		s.Fail = func(verb string) error {
			if verb == "watch" {
				return apierrors.NewResourceExpired("no history")
			}
			return nil
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, map[string]string{"ns/a": "a-1@zz"}, pooltest.Contents(t, l))
		s.Put("ns", "a", 2)
		version.Store("aa")
		pooltest.After(time.Minute)
		require.Equal(t, map[string]string{"ns/a": "a-1@aa"}, pooltest.Contents(t, l))
		require.Zero(t, rollbacks)
	})
}

// rewriting changes the bodies of lists.
type rewriting struct {
	*pooltest.Server
	change func([]byte) []byte
}

func (r rewriting) List(ctx context.Context, q informerpool.Request) (io.ReadCloser, error) {
	body, err := r.Server.List(ctx, q)
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
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		p, err := informerpool.New(informerpool.Options{
			Source: rewriting{s, func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte("WidgetList"), []byte("WidgetCollection"))
			}},
			PagedLists: true,
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		s.Delete("ns", "a")
		s.Compact()
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Minute)
		require.Empty(t, pooltest.Contents(t, l))
		require.NoError(t, l.Trust(0))
	})
}

// ageless is a server whose lists have no version. A watch without a version
// begins with the current objects, the newest first.
type ageless struct{ rewriting }

func (a ageless) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if v := r.Options.ResourceVersion; r.Options.SendInitialEvents != nil || v != "" && v != "0" {
		return a.Server.Watch(ctx, r)
	}
	a.Mu.Lock()
	r.Options.ResourceVersion = strconv.FormatUint(a.Version, 10)
	objects := slices.SortedFunc(maps.Values(a.Objects),
		func(x, y pooltest.Object) int { return cmp.Compare(y.Version, x.Version) })
	a.Mu.Unlock()
	body, err := a.Server.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	var first bytes.Buffer
	for _, o := range objects {
		first.Write(pooltest.Frame("ADDED", o.JSON()))
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
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
			rollbacks := 0
			p, err := informerpool.New(informerpool.Options{
				Source: ageless{rewriting{s, func(b []byte) []byte {
					return regexp.MustCompile(`"resourceVersion":"\d+","continue"`).ReplaceAll(b,
						[]byte(`"resourceVersion":"`+version+`","continue"`))
				}}},
				PagedLists: true, OnRollback: func(informerpool.Key) { rollbacks++ },
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			for _, name := range []string{"a", "b", "c", "d"} {
				s.Put("ns", name, 1)
			}
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			synctest.Wait()
			lists := s.Count("list")
			pooltest.After(time.Minute)
			require.Equal(t, lists, s.Count("list"))

			s.Cut(io.ErrUnexpectedEOF) // within the initial objects
			s.Delete("ns", "b")
			s.Put("ns", "a", 2)
			pooltest.After(time.Minute)
			require.Equal(t, s.State(nil), pooltest.Contents(t, l))

			s.Put("ns", "c", 2)
			s.Cut(io.ErrUnexpectedEOF)
			s.Delete("ns", "d")
			pooltest.After(time.Minute)
			require.Equal(t, s.State(nil), pooltest.Contents(t, l))
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
		"403": apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "fleetcache-history", errors.New("no")),
		"404": apierrors.NewNotFound(pooltest.Widgets.GroupResource(), "fleetcache-history"),
		"405": apierrors.NewMethodNotSupported(pooltest.Widgets.GroupResource(), "watch"),
		"406": apierrors.NewGenericServerResponse(406, "watch", pooltest.Widgets.GroupResource(), "", "", 0, true),
		"410": apierrors.NewResourceExpired("no"),
		"415": apierrors.NewGenericServerResponse(415, "watch", pooltest.Widgets.GroupResource(), "", "", 0, true),
		"418": apierrors.NewGenericServerResponse(418, "watch", pooltest.Widgets.GroupResource(), "", "", 0, true),
		"422": apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
		"429": apierrors.NewTooManyRequests("no", 1),
		"500": apierrors.NewInternalError(errors.New("no")),
		"501": apierrors.NewGenericServerResponse(501, "watch", pooltest.Widgets.GroupResource(), "", "", 0, true),
		"503": apierrors.NewServiceUnavailable("no"), "504": apierrors.NewTimeoutError("no", 1),
		"no end": nil, // a server that treats it as a plain watch
	}
	for name, refusal := range refusals {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " paged ", paged), func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
					asked := 0
					source := questioned{s, func(r informerpool.Request, watch bool) (bool, error) {
						question := strings.HasPrefix(r.Options.FieldSelector, "metadata.name=fleetcache-history") ||
							!watch && r.Options.Limit == 1
						if !question || refusal == nil && !watch {
							return false, nil
						}
						asked++
						return true, refusal
					}}
					p, err := informerpool.New(informerpool.Options{Source: source, PagedLists: paged})
					require.NoError(t, err)
					defer func() { require.NoError(t, p.Close(context.Background())) }()
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					pooltest.After(time.Minute)
					s.Cut(io.ErrUnexpectedEOF)
					s.Put("ns", "a", 2)
					pooltest.After(90 * time.Second)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
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
	*pooltest.Server
	answer func(r informerpool.Request, watch bool) (bool, error)
}

func (q questioned) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if mine, err := q.answer(r, false); mine {
		return nil, err
	}
	return q.Server.List(ctx, r)
}

func (q questioned) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	switch mine, err := q.answer(r, true); {
	case mine && err == nil:
		w := &pooltest.Watch{Ctx: ctx, Server: q.Server, News: make(chan struct{}, 1)}
		time.AfterFunc(time.Duration(*r.Options.TimeoutSeconds)*time.Second, func() { w.End(io.EOF) })
		return w, nil
	case mine:
		return nil, err
	}
	return q.Server.Watch(ctx, r)
}

// TestHazardUserHearsOfTheResourceNotOfTheQuestion: a revoked permission is
// reported for the user's own request.
func TestHazardUserHearsOfTheResourceNotOfTheQuestion(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		var denied atomic.Bool
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			name, _, _ := strings.Cut(strings.TrimPrefix(r.Options.FieldSelector, "metadata.name="), ",")
			return denied.Load(), apierrors.NewForbidden(pooltest.Widgets.GroupResource(), name, errors.New("no"))
		}}
		p, err := informerpool.New(informerpool.Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		denied.Store(true)
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Minute)
		require.True(t, apierrors.IsForbidden(l.Status().LastError))
		require.NotContains(t, l.Status().LastError.Error(), "fleetcache")
	})
}

// TestHazardRightsLimitedByName: the history question uses the selector that
// the permission is for.
func TestHazardRightsLimitedByName(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			return r.Options.FieldSelector != "metadata.name=a",
				apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
		}}
		p, err := informerpool.New(informerpool.Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		k := pooltest.Everything
		k.FieldSelector = "metadata.name=a"
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, k)
		pooltest.After(time.Minute)
		s.Cut(io.ErrUnexpectedEOF)
		s.Put("ns", "a", 2)
		pooltest.After(5 * time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
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
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "o", 1)
				if smaller {
					s.Put("elsewhere", "p", 1)
				}
				narrow := pooltest.Everything
				narrow.Namespace = "ns"
				ahead, lagging := pooltest.AcquireSynced(t, p, narrow),
					pooltest.AcquireSynced(t, p, pooltest.Everything)
				unreachable := func(k informerpool.Key) {
					s.Set(func(s *pooltest.Server) {
						s.Refuse = func(of informerpool.Key) error {
							if of.Namespace == k.Namespace {
								return pooltest.ErrUnreachable
							}
							return nil
						}
					})
				}
				before := pooltest.Copy(s)
				unreachable(pooltest.Everything)
				s.Cut(io.ErrUnexpectedEOF)
				pooltest.After(2 * time.Second)
				s.Put("ns", "o", 2)
				pooltest.After(time.Second)
				unreachable(narrow)
				s.Restore(before, 1000)
				pooltest.After(time.Minute)
				require.Equal(t, 1, lagging.Status().History)
				require.EqualValues(t, 1, lagging.Status().Rollbacks)
				s.Set(func(s *pooltest.Server) { s.Refuse = nil })
				pooltest.After(time.Minute)
				require.Equal(t, 1, ahead.Status().History)
				require.NoError(t, ahead.Trust(0))
			})
		})
	}
}
