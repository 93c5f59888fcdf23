// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// tooLarge is an object above the limit of the tests here.
func tooLarge(o pooltest.Object) []byte {
	return append([]byte(`{"data":"`+strings.Repeat("x", 10_000)+`",`), o.JSON()[1:]...)
}

// replay sends every watch these frames.
func replay(s *pooltest.Server, frames ...[]byte) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for w := range s.Watchers {
		for _, f := range frames {
			w.Push(f)
		}
	}
}

// TestHazardStreamGoesBack: a broken proxy, or a server whose history went back
// under its watches, shows earlier states in a live stream. None of them is
// delivered or read; the informer lists.
func TestHazardStreamGoesBack(t *testing.T) {
	for name, frames := range map[string]func(changed, deleted pooltest.Object) [][]byte{
		"one change": func(changed, _ pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("MODIFIED", changed.JSON())}
		},
		"an object that was deleted": func(_, deleted pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("ADDED", deleted.JSON())}
		},
		"a change of an object that was deleted": func(_, deleted pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("MODIFIED", deleted.JSON())}
		},
		"a delete": func(changed, _ pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("DELETED", changed.JSON())}
		},
		"a stretch": func(changed, deleted pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("ADDED", changed.JSON()), pooltest.Frame("ADDED", deleted.JSON()),
				pooltest.BookmarkFrame(deleted.Version, false)}
		},
		"a state that is too large": func(changed, _ pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("MODIFIED", tooLarge(changed))}
		},
		"an object that was deleted, and was too large": func(_, deleted pooltest.Object) [][]byte {
			return [][]byte{pooltest.Frame("ADDED", tooLarge(deleted))}
		},
		"a state that has no UID": func(changed, _ pooltest.Object) [][]byte {
			changed.UID = ""
			return [][]byte{pooltest.Frame("MODIFIED", changed.JSON())}
		},
		"a bookmark": func(changed, _ pooltest.Object) [][]byte {
			return [][]byte{pooltest.BookmarkFrame(changed.Version, false)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rollbacks := 0
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.MaxObjectBytes = 10_000
				o.OnRollback = func(informerpool.Key) { rollbacks++ }
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "changed", 1)
				s.Put("ns", "deleted", 1)
				changed, deleted := s.Objects[named("changed")], s.Objects[named("deleted")]
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				s.Put("ns", "changed", 2)
				s.Delete("ns", "deleted")
				synctest.Wait()
				before := l.Status()
				r.Take()

				replay(s, frames(changed, deleted)...)
				synctest.Wait()
				require.Equal(t, s.State(nil), pooltest.Contents(t, l), "nothing of it is read")
				require.Equal(t, 1, rollbacks)
				pooltest.After(5 * time.Second)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Empty(t, r.Take(), "nothing of it is told")
				require.Equal(t, before.History+1, l.Status().History)
				s.Put("ns", "changed", 3)
				pooltest.After(time.Second)
				require.Equal(t, s.State(nil), r.State())
				r.RequireSound(t)
			})
		})
	}
}

// TestStreamThatRepeatsItsLastFrameIsOfOneHistory: the same version once more
// is neither a change nor a step back.
func TestStreamThatRepeatsItsLastFrameIsOfOneHistory(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		s.Put("ns", "a", 1)
		synctest.Wait()
		before := l.Status()
		r.Take()
		replay(s, pooltest.Frame("ADDED", s.Objects[named("a")].JSON()), pooltest.BookmarkFrame(s.Version, false),
			pooltest.Frame("MODIFIED", s.Objects[named("a")].JSON()))
		pooltest.After(5 * time.Second)
		require.Empty(t, r.Take())
		require.Equal(t, before.History, l.Status().History)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}
