// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package width_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/width"
)

func about(resource string) width.Subject { return width.Subject{Resource: resource} }

// reserve reserves a place without a wait.
func reserve(t *testing.T, g *width.Gate, resource string) *width.Place {
	t.Helper()
	p, err := g.Reserve(t.Context(), about(resource), func(error) { require.Fail(t, "waits", resource) })
	require.NoError(t, err)
	return p
}

// TestRequestsWaitWithTheRefusalAsTheirReason: nothing waits before the server
// refuses; then a request waits until there is room, and one that was about to
// be sent waits anew.
func TestRequestsWaitWithTheRefusalAsTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g width.Gate
		a, b, early := reserve(t, &g, "a"), reserve(t, &g, "b"), reserve(t, &g, "c")
		require.True(t, a.Send())
		require.True(t, b.Send())
		busy := apierrors.NewTooManyRequests("busy", 3)
		a.End(busy)
		require.False(t, g.Narrow(), "one alone says nothing")
		b.End(busy)
		require.True(t, g.Narrow())
		require.False(t, early.Send())
		early.End(nil)

		began := time.Now()
		var why error
		p, err := g.Reserve(t.Context(), about("d"), func(refusal error) { why = refusal })
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, why, busy)
		require.True(t, p.Send())

		next := make(chan *width.Place)
		go func() {
			p, _ := g.Reserve(t.Context(), about("e"), func(error) {})
			next <- p
		}()
		synctest.Wait()
		p.End(nil)
		(<-next).End(nil)
		require.Equal(t, 3*time.Second, time.Since(began), "an answer makes room at once")
	})
}

// TestRequestThatIsGivenUpHoldsNoPlace ends the context of one that waits.
func TestRequestThatIsGivenUpHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g width.Gate
		for _, resource := range []string{"a", "b"} {
			p := reserve(t, &g, resource)
			require.True(t, p.Send())
			p.End(apierrors.NewTooManyRequestsError("busy"))
		}
		tired := errors.New("tired")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, tired)
		defer cancel()
		_, err := g.Reserve(ctx, about("c"), func(error) {})
		require.ErrorIs(t, err, tired)

		p, err := g.Reserve(t.Context(), about("d"), func(error) {})
		require.NoError(t, err)
		p.End(nil) // it was not sent
		reserve(t, &g, "e")
	})
}
