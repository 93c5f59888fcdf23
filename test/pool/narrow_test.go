// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestNarrowedSubscriptionSeesObjectsComeAndGo: an object that leaves the
// selection is deleted, one that enters it is added, whatever the informer
// holds for others.
func TestNarrowedSubscriptionSeesObjectsComeAndGo(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1, "app=0")
		s.Put("ns", "b", 1, "app=1")
		s.Put("other", "c", 1, "app=1")
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := p.Subscribe(r)
		require.NoError(t, sub.Add(l, informerpool.Key{Namespace: "ns", LabelSelector: "app=0"},
			informerpool.Key{FieldSelector: "metadata.name=c"}))
		synctest.Wait()
		require.ElementsMatch(t, []string{"Added ns/a@101", "Added other/c@103"}, r.Take())
		for _, step := range []struct {
			name, label, want string
		}{
			{"a", "app=1", "Deleted ns/a@104"}, {"a", "app=0", "Added ns/a@105"}, {"a", "app=0", "Updated ns/a@106"},
			{"b", "app=0", "Added ns/b@107"},
		} {
			s.Put("ns", step.name, 2, step.label)
			synctest.Wait()
			require.Equal(t, []string{step.want}, r.Take())
		}
		sub.Resync(l)
		synctest.Wait()
		require.ElementsMatch(t, []string{"Updated ns/a@106", "Updated ns/b@107", "Updated other/c@103"}, r.Take())
		r.RequireSound(t)
		_, bad := errors.AsType[*informerpool.KeyError](
			p.Subscribe(r).Add(l, informerpool.Key{FieldSelector: "spec.nodeName=x"}))
		require.True(t, bad, "only a server knows")
	})
}

// TestDeleteThatWasMergedTellsTheStateThatWasTold: an object changed and was
// deleted while the handler was busy. The event carries both the state the
// handler received and the last one, and a delete outside the selection is not
// lost.
func TestDeleteThatWasMergedTellsTheStateThatWasTold(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1, "app=0")
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		var events []informerpool.Event
		sub := p.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { events = append(events, e) }))
		require.NoError(t, sub.Add(l, informerpool.Key{LabelSelector: "app=0"}))
		synctest.Wait()
		sub.Pause()
		s.Put("ns", "a", 2, "app=0")
		s.Put("ns", "a", 3, "app=1")
		s.Delete("ns", "a")
		synctest.Wait()
		sub.Continue()
		synctest.Wait()
		require.Len(t, events, 2)
		require.Equal(t, informerpool.Deleted, events[1].Type)
		require.Same(t, events[0].New, events[1].LastDelivered)
		require.NotSame(t, events[1].LastDelivered, events[1].Old)
	})
}

// TestRequestMergedWithAChangeIsKept: the event shows that the object was
// requested, whatever else happens to the object before its turn.
func TestRequestMergedWithAChangeIsKept(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		var events []informerpool.Event
		sub := p.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { events = append(events, e) }))
		require.NoError(t, sub.Add(l))
		synctest.Wait()
		for _, steps := range [][]func(){
			{func() { sub.Trigger(l, "ns", "a") }, func() { s.Put("ns", "a", 2) }},
			{func() { s.Put("ns", "a", 3) }, func() { sub.Resync(l) }},
		} {
			events = nil
			sub.Pause()
			for _, step := range steps {
				step()
				synctest.Wait()
			}
			sub.Continue()
			synctest.Wait()
			require.Len(t, events, 1)
			require.True(t, events[0].Requested && !events[0].Resync, "there was news as well")
		}
		s.Put("ns", "a", 4)
		synctest.Wait()
		require.False(t, slices.ContainsFunc(events[1:], func(e informerpool.Event) bool { return e.Requested }))
	})
}
