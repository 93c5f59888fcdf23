// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
)

func TestOnlyDifferencesStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one", "x"), configMap("two", "y")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle})

		change := f.replace(s, entries{"keep": of("a", "app=x"), "go": of("b", "")})
		require.Equal(t, watchset.Change{Added: []string{"go", "keep"}}, change)
		require.ElementsMatch(t, []string{
			"keep a/one Added initial", "go b/one Added initial", "go b/two Added initial",
		}, r.take())

		before := f.requests()
		require.Zero(t, f.replace(s, entries{"keep": of("a", "app in (x)"), "go": of("b", "")}), "it means the same")
		require.Equal(t, before, f.requests())

		change = f.replace(s, entries{"keep": of("a", "app=x"), "come": of("b", "app=y")})
		require.Equal(t, watchset.Change{Added: []string{"come"}, Removed: []string{"go"}}, change)
		require.Equal(t, []string{"come b/two Added initial"}, r.take())
		require.Equal(t, before, f.requests(), "the wider watch of b lingers, and nothing else changed")

		f.write(f.a, configMap("three", "x"))
		f.write(f.b, configMap("three", "x"))
		require.Equal(t, []string{"keep a/three Added"}, r.take())
	})
}

func TestRenamedEntryCostsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one", "x")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle, DeliverLeft: true})
		f.replace(s, entries{"old": of("a", "app=x")})
		r.take()
		before := f.requests()
		f.replace(s, entries{"new": of("a", "app=x")})
		require.ElementsMatch(t, []string{"old a/one Deleted left", "new a/one Added initial"}, r.take())
		require.Equal(t, before, f.requests())
	})
}

func TestClustersAreGivenUpWithTheirLastEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		s := f.newSet(watchset.Options{})
		f.replace(s, entries{"1": of("a", ""), "2": of("a", "app=x"), "3": of("b", "")})
		require.Equal(t, []client.ObjectKey{f.a.Key(), f.b.Key()}, f.cc.Clusters())

		require.NoError(t, f.cc.Cluster(f.b.Key()).Engage(), "something else needs b")
		f.replace(s, entries{"2": of("a", "app=x")})
		require.Equal(t, []client.ObjectKey{f.a.Key(), f.b.Key()}, f.cc.Clusters())
		f.replace(s, nil)
		require.Equal(t, []client.ObjectKey{f.b.Key()}, f.cc.Clusters())
		f.cc.Cluster(f.b.Key()).Disengage()
		synctest.Wait()
		require.Empty(t, f.cc.Clusters())
	})
}

func TestReplaceNeverWaitsForACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle})
		f.a.Hang()
		began := time.Now()
		f.replace(s, entries{"a": of("a", ""), "b": of("b", ""), "none": of("none", "")})
		f.replace(s, entries{"a": of("a", "app=x"), "b": of("b", "")})
		require.Zero(t, time.Since(began))
		require.Equal(t, []string{"b b/one Added initial"}, r.take())
	})
}

func TestInvalidEntriesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle})
		f.replace(s, entries{"good": of("a", "")})
		r.take()

		_, err := s.Replace(t.Context(), entries{"bad": of("a", "app in ("), "": of("a", ""), "none": {}})
		require.ErrorContains(t, err, `entry "bad": labelSelector: `)
		require.ErrorContains(t, err, `entry "none": kind: required`)
		require.ErrorContains(t, err, "an entry needs a name")
		f.write(f.a, configMap("two"))
		require.Equal(t, []string{"good a/two Added"}, r.take())
	})
}

// A changed entry continues: what both selections have is not delivered again,
// and what the new one lacks was deleted, or has left.
func TestChangedEntryDeliversTheDifference(t *testing.T) {
	for left, want := range map[bool][]string{
		false: {"e a/three Added"},
		true:  {"e a/three Added", "e a/one Deleted left"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, r := newFleet(t, configMap("one", "x"), configMap("two", "y"), configMap("three", "z")), &recorder{}
			s := f.newSet(watchset.Options{Handle: r.handle, DeliverLeft: left})
			f.replace(s, entries{"e": of("a", "app in (x,y)")})
			require.Len(t, r.take(), 2)
			change := f.replace(s, entries{"e": of("a", "app in (y,z)")})
			require.Equal(t, watchset.Change{Changed: []string{"e"}}, change)
			events := r.take()
			for i, e := range events {
				if e == "e a/three Added initial" {
					events[i] = "e a/three Added"
				}
			}
			require.ElementsMatch(t, want, events)
		})
	}
}

// An object that both selections have, and that is deleted between the watch of
// the first and the list of the second, must be delivered as deleted.
func TestDeletionBetweenTwoSelectionsIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one", "x"), configMap("two", "y")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle})
		f.replace(s, entries{"e": of("a", "")})
		require.Len(t, r.take(), 2)
		f.a.Disconnect()
		time.Sleep(time.Minute)
		f.replace(s, entries{"e": of("a", "app=y")})
		f.remove(f.a, configMap("one"))
		f.remove(f.a, configMap("two"))
		require.Empty(t, r.take())
		f.a.Connect()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"e a/two Deleted"}, r.take())
	})
}

func TestMovedEntryLeavesItsOldCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle, DeliverLeft: true})
		f.replace(s, entries{"e": of("a", "")})
		r.take()
		f.replace(s, entries{"e": of("b", "")})
		require.ElementsMatch(t, []string{"e a/one Deleted left", "e b/one Added initial"}, r.take())
		require.Equal(t, []client.ObjectKey{f.b.Key()}, f.cc.Clusters())
	})
}

func TestObjectsOfAClusterThatIsGoneLeave(t *testing.T) {
	for _, left := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, r, st := newFleet(t, configMap("one")), &recorder{}, &statuses{}
			s := f.newSet(watchset.Options{Handle: r.handle, OnStatus: st.record, DeliverLeft: left})
			f.replace(s, entries{"e": of("a", "")})
			r.take()
			require.Regexp(t, "e Synced$", st.take())
			f.a.Remove()
			time.Sleep(time.Minute)
			if left {
				require.Equal(t, []string{"e a/one Deleted left"}, r.take())
			} else {
				require.Empty(t, r.take())
			}
			require.Regexp(t, "e ClusterGone$", st.take())

			f.a = f.Add("a", configMap("one"))
			time.Sleep(time.Minute)
			require.Len(t, r.take(), 1)
			require.Contains(t, st.take(), "e Synced")
		})
	}
}

// A cluster may go before the new selection of a changed entry is listed.
func TestObjectsOfAChangedEntryLeaveWithTheirCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one", "x")), &recorder{}
		s := f.newSet(watchset.Options{Handle: r.handle, DeliverLeft: true})
		f.replace(s, entries{"e": of("a", "")})
		r.take()
		f.a.Disconnect()
		time.Sleep(time.Minute)
		f.replace(s, entries{"e": of("a", "app=x")})
		require.Empty(t, r.take(), "the cluster may return with the object")
		f.a.Remove()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"e a/one Deleted left"}, r.take())
	})
}

func TestOnStatusNeedsNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, st := newFleet(t, configMap("one")), &statuses{}
		s := f.newSet(watchset.Options{OnStatus: st.record})
		require.NoError(t, f.cc.Cluster(f.a.Key()).Engage(), "events of the cluster must be over")
		synctest.Wait()
		f.replace(s, entries{"e": of("a", "")})
		// A state that has been replaced before it is delivered is not delivered.
		require.Contains(t, []string{"e Pending, e Synced", "e Synced"}, st.take())
	})
}

func TestFailedObjectIsTriedAgainInItsNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("bad"), configMap("good")), &recorder{}
		broken := true
		var attempts []int
		r.fail = func(e watchset.Event) error {
			if e.Object().GetName() == "bad" {
				attempts = append(attempts, e.Attempt)
				if broken {
					return errors.New("not now")
				}
			}
			return nil
		}
		s := f.newSet(watchset.Options{Handle: r.handle})
		f.replace(s, entries{"e": of("a", "")})
		require.ElementsMatch(t, []string{"e a/bad Added initial", "e a/good Added initial"}, r.take())
		time.Sleep(time.Second)
		require.Equal(t, []string{"e a/bad Added initial", "e a/bad Added initial", "e a/bad Added initial"}, r.take())

		f.write(f.a, configMap("bad", "x"))
		require.Equal(t, []string{"e a/bad Added"}, r.take(), "a new state is delivered at once")
		r.mu.Lock()
		broken = false
		r.mu.Unlock()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"e a/bad Added"}, r.take())
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, attempts)

		r.mu.Lock()
		broken = true
		r.mu.Unlock()
		f.remove(f.a, configMap("bad"))
		f.write(f.a, configMap("good", "x"))
		require.Equal(t, []string{"e a/bad Deleted", "e a/good Updated"}, r.take(), "one object holds up no other")
		r.mu.Lock()
		broken = false
		r.mu.Unlock()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"e a/bad Deleted"}, r.take())
		time.Sleep(time.Hour)
		require.Empty(t, r.take())
	})
}

func TestAddedThatFailedIsDeliveredAsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		r.fail = func(e watchset.Event) error {
			if e.Type == informerpool.Deleted {
				return nil
			}
			return errors.New("not now")
		}
		s := f.newSet(watchset.Options{Handle: r.handle})
		f.replace(s, entries{"e": of("a", "")})
		require.NotEmpty(t, r.take())
		f.remove(f.a, configMap("one"))
		require.Equal(t, []string{"e a/one Deleted"}, r.take(), "the handler may have done half of it")
		time.Sleep(time.Hour)
		require.Empty(t, r.take())
	})
}

// The handler may have done half of what leaving requires.
func TestObjectThatReturnsAfterItsLeavingFailedIsDeliveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		r.fail = func(e watchset.Event) error {
			if e.Left {
				return errors.New("not now")
			}
			return nil
		}
		s := f.newSet(watchset.Options{
			Handle:      r.handle,
			DeliverLeft: true,
			MinBackoff:  time.Hour,
		})
		f.replace(s, entries{"e": of("a", "")})
		f.replace(s, nil)
		require.Equal(t, []string{"e a/one Added initial", "e a/one Deleted left"}, r.take())
		f.replace(s, entries{"e": of("a", "")})
		require.Equal(t, []string{"e a/one Updated"}, r.take())
		time.Sleep(24 * time.Hour)
		require.Empty(t, r.take())
	})
}

func TestAnotherObjectOfTheSameNameIsDeletedAndAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		hold := make(chan struct{})
		s := f.newSet(watchset.Options{Handle: func(ctx context.Context, e watchset.Event) error {
			<-hold
			return r.handle(ctx, e)
		}})
		f.replace(s, entries{"e": of("a", "")})
		f.remove(f.a, configMap("one"))
		f.write(f.a, configMap("one"))
		close(hold)
		require.Equal(t, []string{"e a/one Added initial", "e a/one Deleted", "e a/one Added"}, r.take())
	})
}

func TestPanickingHandlerIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		first := true
		s := f.newSet(watchset.Options{Handle: func(ctx context.Context, e watchset.Event) error {
			if first {
				first = false
				panic("not now")
			}
			return r.handle(ctx, e)
		}})
		f.replace(s, entries{"e": of("a", "")})
		require.Empty(t, r.take())
		time.Sleep(time.Second)
		require.Equal(t, []string{"e a/one Added initial"}, r.take())
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := watchset.New(nil, watchset.Options{Concurrency: -1, MinBackoff: -1, MaxBackoff: -1})
	for _, text := range []string{
		"option cc: required", "option Concurrency: negative", "option MinBackoff: negative",
		"option MaxBackoff: negative",
	} {
		require.ErrorContains(t, err, text)
	}
}
