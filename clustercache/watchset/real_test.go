// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealSetFollowsItsContent replaces the entries of a set on a real API
// server, whose audit log shows which lists and watches that has cost.
func TestRealSetFollowsItsContent(t *testing.T) {
	c := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	events := make(chan string, 100)
	s, err := watchset.New(cc, watchset.Options{
		DeliverLeft: true,
		Handle: func(_ context.Context, e watchset.Event) error {
			if e.Object().GetNamespace() == "default" && e.Object().GetName() != "kube-root-ca.crt" {
				events <- line(e)
			}
			return nil
		},
	})
	require.NoError(t, err)
	next := func() string {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(fleettest.Patience):
			require.Fail(t, "no event")
			return ""
		}
	}
	replace := func(e entries) {
		t.Helper()
		for name, of := range e {
			of.Cluster = fleettest.Key("a")
			e[name] = of
		}
		_, err := s.Replace(t.Context(), e)
		require.NoError(t, err)
	}
	asked := func() int {
		t.Helper()
		requests, err := c.Requests(testenv.UserAgent(fleettest.Agent), testenv.Resource("configmaps"))
		require.NoError(t, err)
		return len(requests)
	}

	require.NoError(t, c.Client().Create(t.Context(), configMap("one", "x")))
	require.NoError(t, c.Client().Create(t.Context(), configMap("two", "y")))
	replace(entries{"x": of("a", "app=x")})
	require.Equal(t, "x a/one Added initial", next())
	replace(entries{"x": of("a", "app=x"), "y": of("a", "app=y")})
	require.Equal(t, "y a/two Added initial", next())
	before := asked()
	replace(entries{"x": of("a", "app in (x)"), "why": of("a", "app=y")})
	require.ElementsMatch(t, []string{"y a/two Deleted left", "why a/two Added initial"}, []string{next(), next()})
	require.Equal(t, before, asked(), "renaming an entry costs no request")

	replace(entries{"x": of("a", "app in (x,y)")})
	require.ElementsMatch(t, []string{"why a/two Deleted left", "x a/two Added initial"}, []string{next(), next()})
	require.NoError(t, c.Client().Delete(t.Context(), configMap("one")))
	require.Equal(t, "x a/one Deleted", next())
	now, ok := s.Status("x")
	require.True(t, ok)
	require.Equal(t, watchset.Synced, now.State)

	replace(nil)
	require.Equal(t, "x a/two Deleted left", next())
	require.NoError(t, s.Close(t.Context()))
	require.NotContains(t, cc.Clusters(), fleettest.Key("a"))
}
