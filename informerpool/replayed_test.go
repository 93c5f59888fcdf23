// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// replay sends every watch these frames.
func (s *modelServer) replay(frames ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		for _, f := range frames {
			w.push(f)
		}
	}
}

// TestHazardStreamGoesBack: a broken proxy, or a server whose history went back
// under its watches, shows earlier states in a live stream. None of them is
// delivered or read; the informer lists.
func TestHazardStreamGoesBack(t *testing.T) {
	for name, frames := range map[string]func(changed, deleted modelObject) [][]byte{
		"one change": func(changed, _ modelObject) [][]byte { return [][]byte{frame("MODIFIED", changed.json())} },
		"an object that was deleted": func(_, deleted modelObject) [][]byte {
			return [][]byte{frame("ADDED", deleted.json())}
		},
		"a change of an object that was deleted": func(_, deleted modelObject) [][]byte {
			return [][]byte{frame("MODIFIED", deleted.json())}
		},
		"a delete": func(changed, _ modelObject) [][]byte { return [][]byte{frame("DELETED", changed.json())} },
		"a stretch": func(changed, deleted modelObject) [][]byte {
			return [][]byte{frame("ADDED", changed.json()), frame("ADDED", deleted.json()), bookmarkFrame(deleted.rv, false)}
		},
		"a bookmark": func(changed, _ modelObject) [][]byte { return [][]byte{bookmarkFrame(changed.rv, false)} },
	} {
		t.Run(name, func(t *testing.T) {
			rollbacks := 0
			bubble(t, func(o *informerpool.Options) {
				o.OnRollback = func(informerpool.Key) { rollbacks++ }
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "changed", 1)
				s.put("ns", "deleted", 1)
				changed, deleted := s.objects[named("changed")], s.objects[named("deleted")]
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				s.put("ns", "changed", 2)
				s.delete("ns", "deleted")
				synctest.Wait()
				before := l.Status()
				r.take()

				s.replay(frames(changed, deleted)...)
				synctest.Wait()
				require.Equal(t, s.state(nil), contents(t, l), "nothing of it is read")
				require.Equal(t, 1, rollbacks)
				after(5 * time.Second)
				require.Equal(t, s.state(nil), contents(t, l))
				require.Empty(t, r.take(), "nothing of it is told")
				require.Equal(t, before.History+1, l.Status().History)
				s.put("ns", "changed", 3)
				after(time.Second)
				require.Equal(t, s.state(nil), r.told())
				r.requireSound(t)
			})
		})
	}
}

// TestStreamThatRepeatsItsLastFrameIsOfOneHistory: the same version once more
// is neither a change nor a step back.
func TestStreamThatRepeatsItsLastFrameIsOfOneHistory(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		s.put("ns", "a", 1)
		synctest.Wait()
		before := l.Status()
		r.take()
		s.replay(frame("ADDED", s.objects[named("a")].json()), bookmarkFrame(s.rv, false), frame("MODIFIED", s.objects[named("a")].json()))
		after(5 * time.Second)
		require.Empty(t, r.take())
		require.Equal(t, before.History, l.Status().History)
		require.Equal(t, s.state(nil), contents(t, l))
	})
}
