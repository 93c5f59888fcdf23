// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// blindly runs happens on a server whose informers fail meanwhile, and then
// compacts the history.
func (s *modelServer) blindly(happens func()) {
	s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
	s.cut(io.ErrUnexpectedEOF)
	synctest.Wait()
	happens()
	s.compact()
	s.set(func(s *modelServer) { s.fail = nil })
}

// back turns a server back into the cluster it was before.
func (s *modelServer) back(before *modelServer) {
	s.become(before.epoch, before.rv)
	s.set(func(s *modelServer) { s.objects = maps.Clone(before.objects) })
}

// TestHazardSeenObjectEndsTheOneThatIsThere: a handler has received the object
// that the server has. Meanwhile a read showed another object of its name, or a
// later state, which is gone now. The handler receives its own object once
// more, and no delete.
func TestHazardSeenObjectEndsTheOneThatIsThere(t *testing.T) {
	for name, interlude := range map[string]func(s *modelServer){
		"another cluster": func(s *modelServer) { s.become("b", 105); s.put("ns", "o", 9) },
		"another object":  func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 9) },
		"later state":     func(s *modelServer) { s.put("ns", "o", 9) },
	} {
		for how, moves := range map[string]bool{"stays": false, "moves": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "o", 1)
					s.put("ns", "other", 1)
					l := acquireSynced(t, p, in("ns"))
					r := newRecorder()
					r.epochs = true
					subscribe(t, p, l, r)
					synctest.Wait()
					r.take()
					before := snapshot(s)
					s.blindly(func() {
						interlude(s)
						l.Seen(s.read(t, "o"))
						if moves {
							require.NoError(t, l.Retarget(t.Context(), everything))
							synctest.Wait()
						}
						s.back(before)
					})
					s.speak(1)
					for i := range 20 { // beyond the version that was read
						s.put("ns", "other", i+2)
					}
					s.speak(10)
					require.Equal(t, s.state(nil), contents(t, l))
					require.Equal(t, s.state(nil), r.told())
					require.Equal(t, []string{"Updated ns/o@101"}, without(r.take(), "other"))
					r.requireSound(t)
				})
			})
		}
	}
}

// TestHazardSeenObjectOfAnEarlierHistory: the object's version says nothing
// about the history that follows, which may take years to get that far. The end
// of the object is delivered all the same, and is not the end of another object
// of its name.
func TestHazardSeenObjectOfAnEarlierHistory(t *testing.T) {
	leaves := map[string]func(s *modelServer, before *modelServer){
		"switched": func(s *modelServer, _ *modelServer) { s.become("b", 50) },
		"restored": func(s *modelServer, before *modelServer) { s.restore(before, 0) },
	}
	for leaving, leave := range leaves {
		for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
			for _, synced := range []bool{true, false} {
				for _, replaced := range []bool{true, false} {
					if leaving == "restored" && !synced {
						continue // nothing shows it
					}
					t.Run(fmt.Sprintf("%s %s synced %t replaced %t", leaving, name, synced, replaced), func(t *testing.T) {
						bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
							before := snapshot(s)
							s.put("ns", "other", 1)
							s.put("ns", "other", 2)
							if !synced {
								s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
							}
							l := acquire(t, p, everything)
							r := newRecorder()
							r.epochs = true
							subscribe(t, p, l, r)
							synctest.Wait()
							r.take()
							s.blindly(func() {
								for i := range 90 {
									s.put("ns", "o", i)
								}
								l.Seen(s.read(t, "o"))
								leave(s, before)
								if replaced {
									s.put("ns", "o", 1)
								}
							})
							after(3 * time.Minute)
							s.put("ns", "p", 1)
							s.speak(5)
							require.Equal(t, s.state(nil), contents(t, l))
							require.Equal(t, s.state(nil), r.told())
							events := r.take()
							if !replaced {
								require.Contains(t, events, "Deleted ns/o@192")
							}
							for i := range 200 {
								s.put("ns", "p", i+2)
							}
							s.speak(3)
							s.blindly(func() {})
							s.speak(3)
							require.Equal(t, s.state(nil), r.told())
							for _, e := range r.take() {
								require.NotContains(t, e, "Deleted")
							}
						})
					})
				}
			}
		}
	}
}
