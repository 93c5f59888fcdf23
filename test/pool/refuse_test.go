// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// onScript runs a test with a lease on a scripted source, by paged lists and by
// streamed ones.
func onScript(t *testing.T, key informerpool.Key, items []string, listKind string,
	test func(*testing.T, *informerpool.Lease)) {
	t.Helper()
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &pooltest.Scripted{
					Listed:   func() string { return pooltest.ListOf(listKind, items...) },
					Streamed: func() string { return pooltest.StreamOf(items...) },
				}
				p, err := informerpool.New(informerpool.Options{Source: s, PagedLists: paged, MaxObjectBytes: 2000})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := pooltest.Acquire(t, p, key)
				synctest.Wait()
				test(t, l)
			})
		})
	}
}

func TestAnswersOfAnotherKindAreRefusedAsAWhole(t *testing.T) {
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s","uid":"u",` +
		`"resourceVersion":"9"}}`
	unnamed := `{"metadata":{"namespace":"ns","name":"s","uid":"u","resourceVersion":"9"}}`
	asked, open := pooltest.Everything, pooltest.Everything
	open.Kind = ""
	for name, c := range map[string]struct {
		key      informerpool.Key
		listKind string
		items    []string
	}{
		"first object":         {asked, "WidgetList", []string{secret, pooltest.WidgetJSON("a", 1)}},
		"later object":         {asked, "List", []string{pooltest.WidgetJSON("a", 1), secret}},
		"no kind in the key":   {open, "WidgetList", []string{secret, pooltest.WidgetJSON("a", 1)}},
		"another API's widget": {asked, "WidgetList", []string{pooltest.Thing("Gadget", "ns", "a", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			onScript(t, c.key, c.items, c.listKind, func(t *testing.T, l *informerpool.Lease) {
				require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrKind)
				require.False(t, l.HasSynced())
				require.Error(t, l.Trust(0))
				_, err := l.Get("ns", "a")
				require.ErrorIs(t, err, informerpool.ErrNotSynced)
			})
		})
	}
	for name, c := range map[string]struct {
		kind  string
		items []string
	}{
		"list of Secrets":         {"SecretList", []string{unnamed}},
		"empty list of Secrets":   {"SecretList", nil},
		"list that has no kind":   {"", []string{unnamed}},
		"nothing that has a kind": {"", nil},
		"list of anything, empty": {"List", nil},
		"list of anything":        {"List", []string{unnamed}},
		"list of Gadgets, empty":  {"GadgetList", nil},
		"list of unnamed ones":    {"WidgetCollection", []string{unnamed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := informerpool.New(informerpool.Options{PagedLists: true,
					Source: &pooltest.Scripted{Listed: func() string { return pooltest.ListOf(c.kind, c.items...) }}})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				require.ErrorIs(t, pooltest.Acquire(t, p, asked).WaitForSync(t.Context()), informerpool.ErrKind)
			})
		})
	}
}

func TestEmptyStreamOfAnotherKindTakesNothingAway(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		wrong := pooltest.Everything
		wrong.Kind = "Gadget"
		require.ErrorIs(t, pooltest.Acquire(t, p, wrong).WaitForSync(t.Context()), informerpool.ErrKind)
		s.Delete("ns", "a")
		require.ErrorIs(t, pooltest.Acquire(t, p, wrong).WaitForSync(t.Context()), informerpool.ErrKind,
			"its bookmark is of another kind")
	})
}

// TestForeignObjectInALiveStreamMakesEverythingUnknown: the server may have
// left out anything else, so a list follows.
func TestForeignObjectInALiveStreamMakesEverythingUnknown(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.NoError(t, l.Trust(time.Hour))
		pooltest.Push(s, "MODIFIED", pooltest.Thing("Secret", "ns", "a", 900))
		synctest.Wait()
		require.ErrorIs(t, l.Trust(time.Hour), informerpool.ErrKind)
		require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
		require.ErrorIs(t, l.Unknown("any", ""), informerpool.ErrRefused)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		lists := s.Count("stream")
		s.Put("ns", "b", 1)
		s.SendBookmark()
		pooltest.After(time.Minute)
		require.Equal(t, lists+1, s.Count("stream"))
		require.NoError(t, l.Trust(time.Hour))
		require.NoError(t, l.Unknown("ns", "a"))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

func TestRefusedObjectsAreUnknownNotAbsent(t *testing.T) {
	big := strings.Replace(pooltest.WidgetJSON("big", 7), `"kind"`, `"data":"`+strings.Repeat("<", 5000)+`","kind"`, 1)
	for name, object := range map[string]string{
		"no uid":     pooltest.WidgetWith(`"namespace":"ns","name":"big","resourceVersion":"7"`),
		"no version": pooltest.WidgetWith(`"namespace":"ns","name":"big","uid":"u"`),
		"long version": pooltest.WidgetWith(`"namespace":"ns","name":"big","uid":"u",` +
			`"resourceVersion":"` + strings.Repeat("1", 5<<10) + `"`),
		"labels that are a list": pooltest.WidgetWith(
			`"labels":[],"namespace":"ns","name":"big","uid":"u","resourceVersion":"7"`),
		"too large": big,
	} {
		t.Run(name, func(t *testing.T) {
			onScript(t, pooltest.Everything, []string{pooltest.WidgetJSON("a", 1), object,
				pooltest.WidgetJSON("z", 8)}, "WidgetList", func(t *testing.T, l *informerpool.Lease) {
				require.True(t, l.HasSynced())
				require.NoError(t, l.Trust(0))
				require.NoError(t, l.Unknown("ns", "a"))
				require.NoError(t, l.Unknown("other", ""))
				require.ErrorIs(t, l.Unknown("ns", "big"), informerpool.ErrRefused)
				require.ErrorIs(t, l.Unknown("ns", ""), informerpool.ErrRefused)
				require.ErrorIs(t, l.Unknown("", ""), informerpool.ErrRefused)
				_, err := l.Get("ns", "big")
				require.ErrorIs(t, err, informerpool.ErrRefused)
				require.False(t, apierrors.IsNotFound(err))
				require.Len(t, pooltest.Contents(t, l), 2)
				s := l.Status()
				require.Equal(t, 1, s.Unknown)
				require.NotEmpty(t, s.LastRefusal)
				require.EqualValues(t, 1, s.Rejected)
			})
		})
	}
	t.Run("no version, in a list that names its own behind its items", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			none := pooltest.WidgetWith(`"namespace":"ns","name":"none","uid":"u"`)
			list := listInOrder("WidgetList", "", pooltest.WidgetJSON("a", 1), none)
			p, err := informerpool.New(informerpool.Options{PagedLists: true,
				Source: &pooltest.Scripted{Listed: func() string { return list }}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			require.Len(t, pooltest.Contents(t, l), 1)
			require.ErrorIs(t, l.Unknown("ns", "none"), informerpool.ErrRefused)
			require.EqualValues(t, 1, l.Status().Rejected)
			require.False(t, l.Status().Polling)
		})
	})
	nameless := pooltest.WidgetWith(`"namespace":"ns","uid":"u","resourceVersion":"7"`)
	onScript(t, pooltest.Everything, []string{pooltest.WidgetJSON("a", 1), nameless}, "WidgetList", func(t *testing.T,
		l *informerpool.Lease) {
		require.True(t, l.HasSynced())
		require.ErrorIs(t, l.Trust(time.Hour), informerpool.ErrRefused)
		require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
		require.True(t, l.Status().AllUnknown)
	})
}

// TestNamesThatOnlyServersUnderstand: RBAC objects may have such names; those
// that are not kept are unknown.
func TestNamesThatOnlyServersUnderstand(t *testing.T) {
	items := []string{
		`{"kind":"Widget","metadata":{"name":"a:b\nc","uid":"1","resourceVersion":"1"}}`,
		`{"kind":"Widget","metadata":{"name":"nul\u0000","uid":"2","resourceVersion":"1"}}`,
		"{\"kind\":\"Widget\",\"metadata\":{\"name\":\"broken\xff\",\"uid\":\"3\",\"resourceVersion\":\"1\"}}",
	}
	onScript(t, pooltest.Everything, items, "WidgetList", func(t *testing.T, l *informerpool.Lease) {
		require.Len(t, pooltest.Contents(t, l), 1)
		require.NoError(t, l.Unknown("", "a:b\nc"))
		require.Error(t, l.Unknown("", "nul\x00"))
		require.Error(t, l.Unknown("", "broken\uFFFD"))
		require.Error(t, l.Unknown("", ""))
	})
}

func TestAListOfWhichAllIsRefusedIsNoAnswer(t *testing.T) {
	item := `{"kind":"Widget","metadata":{"name":"etcd-0"}}`
	onScript(t, pooltest.Everything, []string{item}, "WidgetList", func(t *testing.T, l *informerpool.Lease) {
		require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrRefused)
		require.Error(t, l.Trust(time.Hour))
	})
	t.Run("one that is too large is", func(t *testing.T) {
		big := strings.Replace(pooltest.WidgetJSON("big", 7), `"kind"`, `"data":"`+strings.Repeat("<", 5000)+`","kind"`,
			1)
		onScript(t, pooltest.Everything, []string{big}, "WidgetList", func(t *testing.T, l *informerpool.Lease) {
			require.NoError(t, l.WaitForSync(t.Context()))
			require.Error(t, l.Unknown("ns", "big"))
		})
	})
	t.Run("an endless one ends", func(t *testing.T) {
		onScript(t, pooltest.Everything, append([]string{pooltest.WidgetJSON("a", 1)},
			strings.Split(strings.Repeat(`{"kind":"Widget"} `, 20_000)[:20_000*18-1], " ")...), "WidgetList",
			func(t *testing.T, l *informerpool.Lease) {
				require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrRefused)
				require.LessOrEqual(t, l.Status().Rejected, int64(10_001))
			})
	})
}

// TestDeleteOfARefusedObjectDeletes: its identity is enough.
func TestDeleteOfARefusedObjectDeletes(t *testing.T) {
	refuse := false
	change := func(o *informerpool.Options) {
		o.MaxObjectBytes = 2000
		o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{pooltest.Widgets.GroupResource(): func(
			*unstructured.Unstructured) error {
			if refuse {
				return errors.New("no")
			}
			return nil
		}}
	}
	broken := func(name string, rv int, uid string) string {
		return pooltest.WidgetWith(fmt.Sprintf(
			`"labels":7,"namespace":"ns","name":%q,"uid":%q,"resourceVersion":"%d"`, name, uid, rv))
	}
	pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for _, name := range []string{"a", "b", "c"} {
			s.Put("ns", name, 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()

		s.Put("ns", "a", 2, "x=y")
		synctest.Wait()
		require.Equal(t, []string{"Updated ns/a@104"}, r.Take())
		refuse = true
		s.Put("ns", "a", 3)
		synctest.Wait()
		require.Empty(t, r.Take(), "a refused change is no delete")
		require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
		require.NoError(t, l.Unknown("ns", "b"))
		refuse = false
		s.Put("ns", "a", 4)
		synctest.Wait()
		require.NoError(t, l.Unknown("ns", "a"), "it is known again")
		r.Take()

		refuse = true
		s.Delete("ns", "a")
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/a@106"}, r.Take())
		require.NoError(t, l.Unknown("ns", ""))

		pooltest.Push(s, "DELETED", broken("b", 3, "a-2"))
		pooltest.Push(s, "DELETED", broken("b", 900, "another"))
		synctest.Wait()
		require.Empty(t, r.Take(), "neither an older state nor another object")
		pooltest.Push(s, "DELETED", broken("b", 900, "a-2"))
		pooltest.Push(s, "DELETED", strings.Replace(broken("c", 901, "a-3"), `"labels":7`,
			`"x":"`+strings.Repeat("y", 4000)+`"`, 1))
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/b@102", "Deleted ns/c@103"}, r.Take())
		require.Empty(t, pooltest.Contents(t, l))
		r.RequireSound(t)
	})
}

// TestARefusedObjectIsNotSweptAway: a list that holds it proves that it exists.
func TestARefusedObjectIsNotSweptAway(t *testing.T) {
	for _, paged := range []bool{false, true} {
		refuse := ""
		change := func(o *informerpool.Options) {
			o.PagedLists = paged
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{pooltest.Widgets.GroupResource(): func(
				u *unstructured.Unstructured) error {
				if u.GetName() == refuse {
					return errors.New("no")
				}
				return nil
			}}
		}
		pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "a", 1)
			s.Put("ns", "b", 1)
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			r := pooltest.Record(t, p, l)
			synctest.Wait()
			r.Take()
			relist := func(change func()) {
				s.FailWith(pooltest.ErrUnreachable)
				s.Cut(io.ErrUnexpectedEOF)
				change()
				s.Compact()
				s.Heal()
				pooltest.After(time.Minute)
			}
			refuse = "a"
			relist(func() { s.Put("ns", "c", 1) })
			require.Empty(t, r.Take()[1:], "c alone is news")
			require.ErrorIs(t, l.Unknown("ns", "a"), informerpool.ErrRefused)
			require.NoError(t, l.Unknown("ns", "b"))
			refuse = ""
			relist(func() { s.Put("ns", "c", 2) })
			require.NoError(t, l.Unknown("ns", "a"))
			require.Empty(t, r.Take()[1:])
		})
	}
}
