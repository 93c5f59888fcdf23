// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// put creates a Lease as others do.
func (g *group) put(name, holder string, labels, annotations map[string]string) {
	g.t.Helper()
	api, err := coordinationclient.NewForConfig(g.config)
	require.NoError(g.t, err)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	_, err = api.Leases("default").Create(g.t.Context(), l, metav1.CreateOptions{})
	require.NoError(g.t, err)
}

// refusal waits until a replica that must not run has ended, and returns why.
func refusal(t *testing.T, g *group) error {
	t.Helper()
	begin := time.Now()
	r := g.start(1)[0]
	r.wg.Wait()
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Error(t, r.err)
	return r.err
}

// TestHazardNameIsThatOfALeaderElection: the two have nothing to do with one
// another.
func TestHazardNameIsThatOfALeaderElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.put("operator", "operator-0_1234", nil, nil)
		g.start(2)
		defer g.stop()
		g.waitOwned(10 * time.Second)
	})
}

// TestHazardNameOfTheCharterIsTaken: the error says by whom, and what wanted it.
func TestHazardNameOfTheCharterIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		holder string
		labels map[string]string
		says   string
	}{
		"by a leader election": {"other-7d9f_1", nil, `something else than a sharding, held by "other-7d9f_1"`},
		"by an empty lease":    {"", map[string]string{"app": "x"}, "something else than a sharding"},
		"by another group": {"", map[string]string{
			"fleetcache.github.io/sharding":      "other",
			"fleetcache.github.io/sharding-role": "slot",
		}, `group "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, 12)
				g.options.Program = "example.com/ours"
				g.put("operator-sharding", c.holder, c.labels, nil)
				err := refusal(t, g)
				var taken *sharding.NameError
				require.ErrorAs(t, err, &taken)
				require.Equal(t, "operator-sharding", taken.Lease)
				require.ErrorContains(t, err, "lease default/operator-sharding belongs to "+c.says)
				require.ErrorContains(t, err, `group "operator" of program "example.com/ours"`)
				g.wrote(0)
			})
		})
	}
}

// wrote fails unless the last replica wrote nothing but questions and attempts
// to found the group.
func (g *group) wrote(members int) {
	g.t.Helper()
	api, err := coordinationclient.NewForConfig(g.config)
	require.NoError(g.t, err)
	list, err := api.Leases("default").List(g.t.Context(), metav1.ListOptions{
		LabelSelector: "fleetcache.github.io/sharding-role=member",
	})
	require.NoError(g.t, err)
	require.Len(g.t, list.Items, members)
}

// TestHazardTwoProgramsHaveOneName: the second would own half of the clusters of
// the first.
func TestHazardTwoProgramsHaveOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.options.Program = "example.com/first"
		g.start(1)
		defer g.stop()
		g.waitOwned(10 * time.Second)
		g.options.Program = "example.com/second"
		err := refusal(t, g)
		var taken *sharding.NameError
		require.ErrorAs(t, err, &taken)
		require.ErrorContains(t, err,
			`lease default/operator-sharding belongs to the group of program "example.com/first"`)
		require.ErrorContains(t, err, `group "operator" of program "example.com/second"`)
		g.wrote(1)

		g.options.Program = "example.com/first"
		g.start(1)
		time.Sleep(time.Minute)
		counts, without := g.owned()
		require.Zero(t, without)
		require.InDelta(t, 6, counts[2], 2)
	})
}

// TestGroupOfAnotherFormatIsNotShared has the Leases of a version that named
// them otherwise.
func TestGroupOfAnotherFormatIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.put("operator", "", map[string]string{
			"fleetcache.github.io/sharding":      "operator",
			"fleetcache.github.io/sharding-role": "group",
		}, map[string]string{
			"fleetcache.github.io/sharding-format": "1",
			"fleetcache.github.io/sharding-slots":  "64",
		})
		err := refusal(t, g)
		var mismatch *sharding.GroupError
		require.ErrorAs(t, err, &mismatch)
		require.Equal(t, &sharding.GroupError{Group: "operator", Lease: "operator", Slots: 64, Format: "1"}, mismatch)
	})
}

// TestHazardNameOfASlotIsTaken: the others are owned, and the log names what is
// in the way, once.
func TestHazardNameOfASlotIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.options.Slots = 2
		var lines []string
		g.options.Logger = funcr.New(func(_, args string) {
			if strings.Contains(args, "operator-slot-001") && strings.Contains(args, "belongs to") {
				lines = append(lines, args)
			}
		}, funcr.Options{})
		g.put("operator-slot-001", "somebody", nil, nil)
		r := g.start(1)[0]
		time.Sleep(time.Minute)
		_, without := g.owned()
		require.Positive(t, without)
		require.Less(t, without, 12)
		require.NoError(t, r.Close(context.Background()))
		r.wg.Wait()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "somebody")
	})
}
