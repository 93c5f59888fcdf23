// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

var errForbidden = apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))

// speak has watches carry a bookmark every minute for some minutes, as those of
// an API server do.
func speak(s *pooltest.Server, minutes int) {
	for range minutes {
		pooltest.After(time.Minute)
		s.SendBookmark()
	}
	pooltest.After(0)
}

// TestRevokedRightIsNoticed although the server keeps the watch open: not later
// than after PermissionInterval. A right that is granted again is used within a
// second.
func TestRevokedRightIsNoticed(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 20 {
			speak(s, 10)
			require.NoError(t, l.Trust(0))
			s.FailWith(errForbidden)
			began := time.Now()
			for l.Trust(0) == nil {
				require.LessOrEqual(t, time.Since(began), informerpool.DefaultPermissionInterval)
				pooltest.After(time.Second)
				s.SendBookmark()
			}
			require.True(t, apierrors.IsForbidden(l.Trust(time.Hour)))

			pooltest.After(10 * time.Second)
			s.Heal()
			pooltest.After(time.Second + 100*time.Millisecond) // the next attempt, and silence after it
			require.NoError(t, l.Trust(0))
		}
	})
}

// TestRightIsCheckedByOneRequestPerInterval, which is no list, and interrupts
// nothing.
func TestRightIsCheckedByOneRequestPerInterval(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.AuditInterval = -1
		o.WatchTimeout = 100 * time.Hour
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		speak(s, 5)
		watches, others := s.Count("watch"), s.Count("list")+s.Count("stream")+s.Count("guard")
		events := pooltest.Record(t, p, l)
		before := l.Status()
		speak(s, 300)
		require.GreaterOrEqual(t, s.Count("watch")-watches, 100)
		require.LessOrEqual(t, s.Count("watch")-watches, 140)
		require.Equal(t, others, s.Count("list")+s.Count("stream")+s.Count("guard"))
		require.Equal(t, before.Watches, l.Status().Watches)
		require.Equal(t, before.Resumes, l.Status().Resumes)
		require.Empty(t, events.Take())
		s.Set(func(s *pooltest.Server) { require.Len(t, s.Watchers, 1, "each question has ended") })
	})
}

// TestHazardQuestionAboutARightFails: nothing but a refusal is an answer, and a
// refusal that the informer's own requests do not meet is none.
func TestHazardQuestionAboutARightFails(t *testing.T) {
	for name, failure := range map[string]error{
		"down":      pooltest.ErrUnreachable,
		"busy":      apierrors.NewTooManyRequestsError("busy"),
		"error":     apierrors.NewInternalError(errors.New("no")),
		"gone":      apierrors.NewResourceExpired("too old"),
		"forbidden": errForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.AuditInterval = -1
				o.WatchTimeout = 100 * time.Hour
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				speak(s, 5)
				lists := s.Count("list") + s.Count("stream")
				failed := 0
				s.Set(func(s *pooltest.Server) {
					s.Fail = func(verb string) error {
						if verb != "watch" || failed > 10 {
							return nil
						}
						if failed++; failed%2 == 0 && name == "forbidden" {
							return nil // the question alone is refused, and not the resumed watch that follows
						}
						return failure
					}
				})
				for range 120 {
					speak(s, 1)
					require.NoError(t, l.Trust(0))
				}
				require.Greater(t, failed, 10)
				require.Equal(t, lists, s.Count("list")+s.Count("stream"))
				if name != "forbidden" {
					require.Zero(t, l.Status().Resumes)
				}
			})
		})
	}
}

// TestHazardManyInformersAreRefused: they share two attempts per second, and
// if they are permitted together, all of them work after the first attempt, for
// which alone each would wait for half a minute.
func TestHazardManyInformersAreRefused(t *testing.T) {
	const informers = 50
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.FailWith(errForbidden)
		leases := make([]*informerpool.Lease, informers)
		for i := range leases {
			leases[i] = pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i)))
		}
		all := func() int { return s.Count("list") + s.Count("stream") + s.Count("guard") + s.Count("watch") }
		pooltest.After(time.Minute)
		before := all()
		pooltest.After(10 * time.Minute)
		require.LessOrEqual(t, all()-before, 10*60*3)
		s.Heal()
		pooltest.After(5 * time.Second) // the attempts are spread at random
		for _, l := range leases {
			require.NoError(t, l.Trust(0))
		}
	})
}

// TestOneInformerIsPermittedAmongRefusedOnes: those that are still refused do
// not try more often for it.
func TestOneInformerIsPermittedAmongRefusedOnes(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		permitted := pooltest.In("permitted")
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(k informerpool.Key) error {
				if k == permitted {
					return nil
				}
				return errForbidden
			}
		})
		for i := range 20 {
			pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i)))
		}
		pooltest.AcquireSynced(t, p, permitted)
		all := func() int { return s.Count("list") + s.Count("stream") }
		pooltest.After(time.Minute)
		for range 100 {
			before := all()
			pooltest.After(10 * time.Second)
			require.LessOrEqual(t, all()-before, 40)
			s.Cut(pooltest.ErrUnreachable)
		}
	})
}

// TestNegativePermissionIntervalAsksNothing: the watch is then used until it
// ends.
func TestNegativePermissionIntervalAsksNothing(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PermissionInterval = -1
		o.AuditInterval = -1
		o.WatchTimeout = 100 * time.Hour
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.FailWith(errForbidden)
		speak(s, 300)
		require.NoError(t, l.Trust(0))
		require.Zero(t, s.Count("watch"))
	})
}

// TestShortPermissionIntervalIsRefused: it would flood the servers.
func TestShortPermissionIntervalIsRefused(t *testing.T) {
	_, err := informerpool.New(informerpool.Options{Source: pooltest.NewServer(), PermissionInterval: time.Second})
	invalid := &informerpool.OptionError{}
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "PermissionInterval", invalid.Field)
}
