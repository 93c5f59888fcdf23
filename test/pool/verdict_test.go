// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// refusals are the answers that end the trust in an informer's objects.
var refusals = []struct {
	name  string
	err   error
	is    func(error) bool
	verbs []string // nil: all
}{
	{"forbidden list and watch", errForbidden, apierrors.IsForbidden, nil},
	{"forbidden watch", errForbidden, apierrors.IsForbidden, []string{"watch", "stream"}},
	{"forbidden list", errForbidden, apierrors.IsForbidden, []string{"list", "stream"}},
	{"unauthorized", apierrors.NewUnauthorized("who"), apierrors.IsUnauthorized, nil},
	{"not served", apierrors.NewGenericServerResponse(404, "list", pooltest.Widgets.GroupResource(), "", "no", 0, true),
		apierrors.IsNotFound, []string{"list", "stream", "watch"}},
	{"no method", apierrors.NewMethodNotSupported(pooltest.Widgets.GroupResource(), "list"),
		apierrors.IsMethodNotSupported, []string{"list", "stream"}},
	{"over budget", informerpool.ErrBudget, is(informerpool.ErrBudget), nil},
	{"another kind", informerpool.ErrKind, is(informerpool.ErrKind), nil},
	{"another history", informerpool.ErrHistory, is(informerpool.ErrHistory), nil},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// further are failures that say nothing about what was refused before.
var further = []struct {
	name string
	fail func(*pooltest.Server)
}{
	{"unavailable", failing(apierrors.NewServiceUnavailable("no"))},
	{"busy", failing(apierrors.NewTooManyRequestsError("no"))},
	{"internal error", failing(apierrors.NewInternalError(errors.New("no")))},
	{"timeout", failing(apierrors.NewTimeoutError("no", 1))},
	{"expired", failing(apierrors.NewResourceExpired("no"))},
	{"one refused credential", failing(apierrors.NewUnauthorized("no"))},
	{"conflict", failing(apierrors.NewConflict(schema.GroupResource{}, "", errors.New("no")))},
	{"reset", failing(io.ErrUnexpectedEOF)},
	{"unreachable", failing(pooltest.ErrUnreachable)},
	{"hang", func(s *pooltest.Server) { s.Fail, s.Block = nil, pooltest.Hang() }},
	{"disconnected", func(s *pooltest.Server) { s.Fail, s.NotReady = nil, pooltest.Hang() }},
}

func failing(err error) func(*pooltest.Server) {
	return func(s *pooltest.Server) { s.Fail = func(string) error { return err } }
}

// TestRefusalIsLiftedByAnAcceptedRequestAlone: a server that refuses, and then
// fails in another way, has not accepted anything again. Whatever grace a read
// allows, the objects from before the refusal are no answer, until a list or
// watch is accepted.
func TestRefusalIsLiftedByAnAcceptedRequestAlone(t *testing.T) {
	for _, first := range refusals {
		for _, second := range further {
			t.Run(first.name+", then "+second.name, func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "a", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					pooltest.After(time.Minute)
					s.Set(func(s *pooltest.Server) {
						s.Fail = func(verb string) error {
							if first.verbs == nil || slices.Contains(first.verbs, verb) {
								return first.err
							}
							return nil
						}
					})
					s.Deafly(func() { s.Put("ns", "a", 2) })
					s.Compact() // a resumed watch needs a list
					s.Cut(io.ErrUnexpectedEOF)
					pooltest.After(5 * time.Second)
					require.True(t, first.is(l.Trust(time.Hour)), "%v", l.Trust(time.Hour))

					s.Set(second.fail)
					s.Cut(io.ErrUnexpectedEOF)
					for range 200 {
						pooltest.After(time.Second)
						require.True(t, first.is(l.Trust(time.Hour)), "%v", l.Trust(time.Hour))
						require.True(t, first.is(l.Status().LastError), "%v", l.Status().LastError)
						require.True(t, l.TrustEnds(time.Hour).IsZero())
					}

					s.Set(func(s *pooltest.Server) {
						for _, wait := range []*chan struct{}{&s.Block, &s.NotReady} {
							if *wait != nil {
								close(*wait)
							}
							*wait = nil
						}
					})
					s.Heal()
					pooltest.After(2 * time.Minute)
					require.NoError(t, l.Trust(0))
					require.NoError(t, l.Status().LastError)
					require.Equal(t, s.State(all), pooltest.Contents(t, l))
				})
			})
		}
	}
}

func all(pooltest.Object) bool { return true }

// TestWaitersHearOfARefusalThatALaterFailureFollows: waiting for a first list
// fails with the refusal for as long as it stands.
func TestWaitersHearOfARefusalThatALaterFailureFollows(t *testing.T) {
	for _, second := range further {
		t.Run(second.name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.FailWith(errForbidden)
				l := pooltest.Acquire(t, p, pooltest.Everything)
				require.True(t, apierrors.IsForbidden(l.WaitForSync(t.Context())))
				s.Set(second.fail)
				for range 60 {
					pooltest.After(time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					err := l.WaitForSync(ctx)
					cancel()
					require.True(t, apierrors.IsForbidden(err), "%v", err)
				}
			})
		})
	}
}
