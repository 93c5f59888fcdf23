// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// blindly runs happens on a server whose informers fail meanwhile, and then
// compacts the history.
func blindly(s *pooltest.Server, happens func()) {
	s.FailWith(pooltest.ErrUnreachable)
	s.Cut(io.ErrUnexpectedEOF)
	synctest.Wait()
	happens()
	s.Compact()
	s.Heal()
}

// back turns a server back into the cluster it was before.
func back(s *pooltest.Server, before *pooltest.Server) {
	s.Become(before.Epoch, before.Version)
	s.Set(func(s *pooltest.Server) { s.Objects = maps.Clone(before.Objects) })
}

// TestHazardSeenObjectEndsTheOneThatIsThere: a handler has received the object
// that the server has. Meanwhile a read showed another object of its name, or a
// later state, which is gone now. The handler receives its own object once
// more, and no delete.
func TestHazardSeenObjectEndsTheOneThatIsThere(t *testing.T) {
	for name, interlude := range map[string]func(s *pooltest.Server){
		"another cluster": func(s *pooltest.Server) { s.Become("b", 105); s.Put("ns", "o", 9) },
		"another object":  func(s *pooltest.Server) { s.Delete("ns", "o"); s.Put("ns", "o", 9) },
		"later state":     func(s *pooltest.Server) { s.Put("ns", "o", 9) },
	} {
		for how, moves := range map[string]bool{"stays": false, "moves": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "o", 1)
					s.Put("ns", "other", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
					r := pooltest.NewRecorder()
					r.Epochs = true
					pooltest.Subscribe(t, p, l, r)
					synctest.Wait()
					r.Take()
					before := pooltest.Copy(s)
					blindly(s, func() {
						interlude(s)
						l.Seen(s.Read(t, "o"))
						if moves {
							require.NoError(t, l.Retarget(t.Context(), pooltest.Everything))
							synctest.Wait()
						}
						back(s, before)
					})
					s.Speak(1)
					for i := range 20 { // beyond the version that was read
						s.Put("ns", "other", i+2)
					}
					s.Speak(10)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					require.Equal(t, s.State(nil), r.State())
					require.Equal(t, []string{"Updated ns/o@101"}, pooltest.Without(r.Take(), "other"))
					r.RequireSound(t)
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
	leaves := map[string]func(s *pooltest.Server, before *pooltest.Server){
		"switched": func(s *pooltest.Server, _ *pooltest.Server) { s.Become("b", 50) },
		"restored": func(s *pooltest.Server, before *pooltest.Server) { s.Restore(before, 0) },
	}
	for leaving, leave := range leaves {
		for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
			for _, synced := range []bool{true, false} {
				for _, replaced := range []bool{true, false} {
					if leaving == "restored" && !synced {
						continue // nothing shows it
					}
					t.Run(fmt.Sprintf("%s %s synced %t replaced %t", leaving, name, synced,
						replaced), func(t *testing.T) {
						pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(
							t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
							before := pooltest.Copy(s)
							s.Put("ns", "other", 1)
							s.Put("ns", "other", 2)
							if !synced {
								s.Set(
									func(s *pooltest.Server) {
										s.Fail = func(string) error { return pooltest.ErrUnreachable }
									})
							}
							l := pooltest.Acquire(t, p, pooltest.Everything)
							r := pooltest.NewRecorder()
							r.Epochs = true
							pooltest.Subscribe(t, p, l, r)
							synctest.Wait()
							r.Take()
							blindly(s, func() {
								for i := range 90 {
									s.Put("ns", "o", i)
								}
								l.Seen(s.Read(t, "o"))
								leave(s, before)
								if replaced {
									s.Put("ns", "o", 1)
								}
							})
							pooltest.After(3 * time.Minute)
							s.Put("ns", "p", 1)
							s.Speak(5)
							require.Equal(t, s.State(nil), pooltest.Contents(t, l))
							require.Equal(t, s.State(nil), r.State())
							events := r.Take()
							if !replaced {
								require.Contains(t, events, "Deleted ns/o@192")
							}
							for i := range 200 {
								s.Put("ns", "p", i+2)
							}
							s.Speak(3)
							blindly(s, func() {})
							s.Speak(3)
							require.Equal(t, s.State(nil), r.State())
							for _, e := range r.Take() {
								require.NotContains(t, e, "Deleted")
							}
						})
					})
				}
			}
		}
	}
}
