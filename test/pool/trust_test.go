// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

const grace = 10 * time.Second

func TestTrustEndsWithThePermission(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.Acquire(t, p, pooltest.Everything)
		require.ErrorIs(t, l.Trust(grace), informerpool.ErrNotSynced)
		synctest.Wait()
		require.NoError(t, l.Trust(grace))
		s.FailWith(apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no")))
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Second)
		require.True(t, apierrors.IsForbidden(l.Trust(time.Hour)), "no grace for what is refused: %v",
			l.Trust(time.Hour))
		s.Heal()
		pooltest.After(time.Minute)
		require.NoError(t, l.Trust(0))
		l.Release()
		require.ErrorIs(t, l.Trust(grace), informerpool.ErrReleased)
	})
}

func TestTrustLastsAGraceAfterABreak(t *testing.T) {
	for name, cause := range map[string]error{"error": io.ErrUnexpectedEOF, "regular end": io.EOF} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				pooltest.After(time.Minute)
				s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
				s.Cut(cause)
				pooltest.After(grace)
				require.NoError(t, l.Trust(grace))
				pooltest.After(time.Millisecond)
				require.Error(t, l.Trust(grace))
				s.Set(func(s *pooltest.Server) { close(s.NotReady); s.NotReady = nil })
				synctest.Wait()
				require.NoError(t, l.Trust(0))
			})
		})
	}
}

// TestHazardStreamThatProvesNothingRevivesTrust: an informer that is not
// trusted, since it has gone without a sign of life for too long, is not trusted
// again for a response that brings its objects no nearer to the server's: live
// reads have shown later states meanwhile.
func TestHazardStreamThatProvesNothingRevivesTrust(t *testing.T) {
	const grace = 3 * time.Minute
	gone := []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	for name, accepted := range map[string]func(w *pooltest.Watch){
		"410 in the stream": func(w *pooltest.Watch) { w.Push(pooltest.Frame("ERROR", gone)) },
		"end of the stream": func(w *pooltest.Watch) { w.End(io.EOF) },
		"half a frame": func(w *pooltest.Watch) {
			w.Push([]byte(`{"type":`))
			w.End(io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				pooltest.After(25 * time.Second)
				s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
				s.Cut(io.EOF)
				pooltest.After(160 * time.Second)
				seen, ended := l.Status().LastSeen, l.Trust(grace) != nil
				s.Set(func(s *pooltest.Server) {
					s.Accepted = func(_ string, w *pooltest.Watch) { accepted(w) }
					s.Fail = func(verb string) error {
						if verb != "watch" && verb != "guard" {
							return pooltest.ErrUnreachable
						}
						return nil
					}
					close(s.NotReady)
					s.NotReady = nil
				})
				for range 600 {
					pooltest.After(100 * time.Millisecond)
					untrusted := l.Trust(grace) != nil
					require.False(t, ended && !untrusted)
					ended = untrusted
					require.Equal(t, seen, l.Status().LastSeen)
				}
				require.True(t, ended)
				require.NotZero(t, s.Count("watch"))
			})
		})
	}
}

func TestTrustSurvivesOneRefusedCredential(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.After(time.Minute)
		s.FailWith(apierrors.NewUnauthorized("who"))
		s.Cut(io.ErrUnexpectedEOF)
		for s.Count("guard") == 0 {
			pooltest.After(time.Millisecond)
		}
		require.NoError(t, l.Trust(grace), "the credential may be being replaced")
		pooltest.After(5 * time.Second)
		require.True(t, apierrors.IsUnauthorized(l.Trust(time.Hour)))
	})
}

func TestTrustIsWithdrawnUntilTheNewHistoryIsListed(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Version, s.Log = 50, nil
			s.Fail = func(verb string) error {
				if verb != "guard" {
					return pooltest.ErrUnreachable
				}
				return nil
			}
		})
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(5 * time.Second)
		require.ErrorIs(t, l.Trust(time.Hour), informerpool.ErrHistory)
		s.Heal()
		pooltest.After(time.Minute)
		require.NoError(t, l.Trust(0))
	})
}

// TestHazardTrustThatReturnsGoesUnheard: an informer whose watch ended in the
// regular way, and that could not continue for a while, is reported to have
// changed when it is trusted again, once.
func TestHazardTrustThatReturnsGoesUnheard(t *testing.T) {
	var changed atomic.Int64
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.OnChanged = func(informerpool.Key, bool) { changed.Add(1) }
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 3 {
			pooltest.After(time.Minute)
			s.SendBookmark()
			require.True(t, l.TrustEnds(grace).After(time.Now()))
			s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
			s.Cut(io.EOF)
			pooltest.After(2 * grace)
			require.Error(t, l.Trust(grace))
			require.False(t, l.TrustEnds(grace).After(time.Now()))
			before := changed.Load()
			s.Set(func(s *pooltest.Server) { close(s.NotReady); s.NotReady = nil })
			pooltest.After(time.Second)
			require.NoError(t, l.Trust(grace))
			require.Equal(t, before+1, changed.Load())
			require.True(t, l.TrustEnds(grace).After(time.Now()))

			for range 30 {
				pooltest.After(time.Second)
				s.SendBookmark()
			}
			pooltest.After(0)
			require.Equal(t, before+1, changed.Load(), "it was trusted all the time")
		}
	})
}
