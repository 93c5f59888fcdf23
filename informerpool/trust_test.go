// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
)

const grace = 10 * time.Second

func TestTrustEndsWithThePermission(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquire(t, p, everything)
		require.ErrorIs(t, l.Trust(grace), informerpool.ErrNotSynced)
		synctest.Wait()
		require.NoError(t, l.Trust(grace))
		s.set(func(s *modelServer) {
			s.fail = func(string) error { return apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")) }
		})
		s.cut(io.ErrUnexpectedEOF)
		after(time.Second)
		require.True(t, apierrors.IsForbidden(l.Trust(time.Hour)), "no grace for what is refused: %v", l.Trust(time.Hour))
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
		require.NoError(t, l.Trust(0))
		l.Release()
		require.ErrorIs(t, l.Trust(grace), informerpool.ErrReleased)
	})
}

func TestTrustLastsAGraceAfterABreak(t *testing.T) {
	for name, cause := range map[string]error{"error": io.ErrUnexpectedEOF, "regular end": io.EOF} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				l := acquireSynced(t, p, everything)
				after(time.Minute)
				s.set(func(s *modelServer) { s.notReady = hang() })
				s.cut(cause)
				after(grace)
				require.NoError(t, l.Trust(grace))
				after(time.Millisecond)
				require.Error(t, l.Trust(grace))
				s.set(func(s *modelServer) { close(s.notReady); s.notReady = nil })
				synctest.Wait()
				require.NoError(t, l.Trust(0))
			})
		})
	}
}

func TestTrustSurvivesOneRefusedCredential(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		after(time.Minute)
		s.set(func(s *modelServer) { s.fail = func(string) error { return apierrors.NewUnauthorized("who") } })
		s.cut(io.ErrUnexpectedEOF)
		for s.count("guard") == 0 {
			after(time.Millisecond)
		}
		require.NoError(t, l.Trust(grace), "the credential may be being replaced")
		after(5 * time.Second)
		require.True(t, apierrors.IsUnauthorized(l.Trust(time.Hour)))
	})
}

func TestTrustIsWithdrawnUntilTheNewHistoryIsListed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) {
			s.rv, s.log = 50, nil
			s.fail = func(verb string) error {
				if verb != "guard" {
					return errUnreachable
				}
				return nil
			}
		})
		s.cut(io.ErrUnexpectedEOF)
		after(5 * time.Second)
		require.ErrorIs(t, l.Trust(time.Hour), informerpool.ErrHistory)
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
		require.NoError(t, l.Trust(0))
	})
}
