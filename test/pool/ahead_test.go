// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"io"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardObjectComesAndGoesBehindAnotherInformer: an object was created and
// deleted again, which one informer has shown, by its watch or by a list that
// never had the object. Another informer of the resource, which lags, receives
// the creation alone: it is outdated until it has the delete, whether or not the
// first one has ended meanwhile. It is not asked for more, such as the version
// of the list.
func TestHazardObjectComesAndGoesBehindAnotherInformer(t *testing.T) {
	inNamespace, named := pooltest.Everything, pooltest.Everything
	inNamespace.Namespace, named.Namespace, named.FieldSelector = "ns", "ns", "metadata.name=new"
	for name, see := range map[string]func(*pooltest.Server, *pooltest.Watch, ...[]byte){
		"watch": func(_ *pooltest.Server, w *pooltest.Watch, frames ...[]byte) {
			for _, f := range frames {
				w.Push(f)
			}
		},
		"list": func(s *pooltest.Server, w *pooltest.Watch, _ ...[]byte) {
			s.Compact()
			s.Set(func(s *pooltest.Server) { delete(s.Watchers, w) })
			w.End(io.ErrUnexpectedEOF)
		},
	} {
		for _, c := range []struct {
			narrow informerpool.Key
			ends   bool
		}{{inNamespace, false}, {inNamespace, true}, {named, false}, {named, true}} {
			narrow := c.narrow
			t.Run(fmt.Sprintf("%s %s %v", name, narrow.FieldSelector, c.ends), func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					first := pooltest.AcquireSynced(t, p, narrow)
					late := pooltest.AcquireSynced(t, p, pooltest.Everything)
					s.Set(func(s *pooltest.Server) { s.Deaf = true })
					s.Put("ns", "new", 1)
					s.Delete("ns", "new")
					s.Put("elsewhere", "another", 1) // lists are at its version
					created, deleted := s.Log[0], s.Log[1]
					frames := [][]byte{
						pooltest.Frame("ADDED", created.Object.JSON()),
						pooltest.Frame("DELETED", deleted.Object.JSON()),
					}
					watches := map[string]*pooltest.Watch{}
					for w := range watchesOf(s) {
						watches[w.Key.Namespace] = w
					}
					see(s, watches["ns"], frames...)
					time.Sleep(time.Minute)
					_, err := first.Get("ns", "new")
					require.True(t, apierrors.IsNotFound(err), "%v", err)
					_, err = first.Find("ns", "new", time.Hour)
					require.NoError(t, err)
					if c.ends {
						first.ReleaseNow()
						synctest.Wait()
					}

					watches[""].Push(frames[0])
					synctest.Wait()
					_, err = late.Get("ns", "new")
					require.NoError(t, err)
					_, err = late.Find("ns", "new", time.Hour)
					require.ErrorIs(t, err, informerpool.ErrOutdated)
					_, outdated := late.ListOutdated(narrow, false)
					require.True(t, outdated)
					_, outdated = late.ListOutdated(pooltest.Everything, false)
					require.False(t, outdated, "no other informer answers that list")

					watches[""].Push(frames[1])
					synctest.Wait()
					_, err = late.Find("ns", "new", time.Hour)
					require.NoError(t, err)
					_, outdated = late.ListOutdated(narrow, false)
					require.False(t, outdated)
				})
			})
		}
	}
}

// TestHazardBusyNamespaceHoldsBackReadsOfAnIdleOne: however many objects change
// in one namespace, the informer of another one, which hears of none of them,
// answers at its own position.
func TestHazardBusyNamespaceHoldsBackReadsOfAnIdleOne(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("idle", "one", 1)
		idle := pooltest.AcquireSynced(t, p, pooltest.In("idle"))
		busy := pooltest.AcquireSynced(t, p, pooltest.In("busy"))
		for n := range 10_000 {
			s.Put("busy", strconv.Itoa(n), 1)
		}
		synctest.Wait()
		_, err := idle.Find("idle", "one", time.Hour)
		require.NoError(t, err)
		_, err = idle.Find("idle", "none", time.Hour)
		require.NoError(t, err)
		_, err = busy.Find("busy", "1", time.Hour)
		require.NoError(t, err)
	})
}

// TestHazardListWithoutAVersionIsOutdatedForEver: one informer has shown that an
// object is gone. Another one has listed since, from a server whose lists are at
// no version, and nothing says how far it has come: it is not held back.
func TestHazardListWithoutAVersionIsOutdatedForEver(t *testing.T) {
	odd := &versionlessServer{version: "0"}
	change := func(o *informerpool.Options) { odd.Server, o.Source = o.Source.(*pooltest.Server), odd }
	pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		s.Put("ns", "kept", 1)
		s.Put("ns", "gone", 1)
		pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		synctest.Wait()
		first := watchesOf(s)
		late := pooltest.AcquireSynced(t, p, pooltest.Everything)
		synctest.Wait()
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(k informerpool.Key) error {
				if k == pooltest.Everything {
					return pooltest.ErrUnreachable
				}
				return nil
			}
		})
		for w := range watchesOf(s) {
			if _, is := first[w]; !is {
				s.Set(func(s *pooltest.Server) { delete(s.Watchers, w) })
				w.End(io.ErrUnexpectedEOF)
			}
		}
		synctest.Wait()
		s.Delete("ns", "gone")
		synctest.Wait()
		_, err := late.Find("ns", "gone", time.Hour)
		require.ErrorIs(t, err, informerpool.ErrOutdated)
		s.Compact()
		s.Set(func(s *pooltest.Server) { s.Refuse = nil })
		pooltest.After(time.Minute)
		require.Len(t, pooltest.Contents(t, late), 1)
		shown, outdated := late.ListOutdated(pooltest.In("ns"), false)
		require.False(t, outdated, "%s was shown, the cache is at %s", shown, late.ResourceVersion())
	})
}

// TestHazardVersionBeyondNumbersHoldsBackLists: a list whose version has more
// than 64 bits is at no moment that another list could be before.
func TestHazardVersionBeyondNumbersHoldsBackLists(t *testing.T) {
	odd := &oddServer{version: "100000000000000000000", place: "list", refusal: apierrors.NewBadRequest("version")}
	change := func(o *informerpool.Options) { odd.Server, o.Source = o.Source.(*pooltest.Server), odd }
	pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		odd.healed = true
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(k informerpool.Key) error {
				if k == pooltest.In("ns") {
					return pooltest.ErrUnreachable
				}
				return nil
			}
		})
		began := time.Now()
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Less(t, time.Since(began), time.Second)
	})
}

// TestHazardEpochReturnsWithoutTheHistoriesOfItsResources: a resource has gone
// back alone. One of its informers sees another epoch for a moment, and the
// other one nothing: both show the same history afterwards, and either answers.
func TestHazardEpochReturnsWithoutTheHistoriesOfItsResources(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "o", 1)
		before := pooltest.Copy(s)
		stays := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		leaves := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Put("ns", "o", 2)
		synctest.Wait()
		s.Restore(before, 0)
		pooltest.After(time.Minute)
		require.Equal(t, 1, stays.Status().History)
		for _, epoch := range []informerpool.Epoch{"b", "a"} {
			for w := range watchesOf(s) {
				if w.Key == pooltest.Everything {
					s.Set(func(s *pooltest.Server) { s.Epoch = epoch; delete(s.Watchers, w) })
					w.End(io.ErrUnexpectedEOF)
				}
			}
			pooltest.After(time.Minute)
			require.Equal(t, epoch, leaves.Epoch())
		}
		require.Equal(t, 1, leaves.Status().History)
		_, err := stays.Find("ns", "o", time.Hour)
		require.NoError(t, err)
	})
}

// watchesOf returns the watches that a server serves now.
func watchesOf(s *pooltest.Server) (of map[*pooltest.Watch]struct{}) {
	s.Set(func(s *pooltest.Server) { of = maps.Clone(s.Watchers) })
	return of
}

// TestHazardDeleteWithoutAVersionIsUndoneByALaterCreation: one informer has shown
// that an object is gone. No version tells when it was deleted. Another informer,
// which lags, receives the creation: it is outdated until it has come as far.
func TestHazardDeleteWithoutAVersionIsUndoneByALaterCreation(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		first := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		late := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) { s.Deaf = true })
		s.Put("ns", "new", 1)
		s.Put("elsewhere", "another", 1) // the first one hears of it by a bookmark
		created := s.Log[0].Object.JSON()
		watches := map[string]*pooltest.Watch{}
		for w := range watchesOf(s) {
			watches[w.Key.Namespace] = w
		}
		watches["ns"].Push(pooltest.Frame("ADDED", created))
		watches["ns"].Push(pooltest.BookmarkFrame(s.Version, false))
		watches["ns"].Push(pooltest.Frame("DELETED", created))
		synctest.Wait()
		_, err := first.Find("ns", "new", time.Hour)
		require.NoError(t, err)
		_, err = first.Get("ns", "new")
		require.True(t, apierrors.IsNotFound(err), "%v", err)

		watches[""].Push(pooltest.Frame("ADDED", created))
		synctest.Wait()
		_, err = late.Get("ns", "new")
		require.NoError(t, err)
		_, err = late.Find("ns", "new", time.Hour)
		require.ErrorIs(t, err, informerpool.ErrOutdated)
		_, outdated := late.ListOutdated(pooltest.In("ns"), false)
		require.True(t, outdated)

		watches[""].Push(pooltest.Frame("DELETED", created))
		synctest.Wait()
		_, err = late.Find("ns", "new", time.Hour)
		require.NoError(t, err)
		_, outdated = late.ListOutdated(pooltest.In("ns"), false)
		require.False(t, outdated, "it is not shown any more")
	})
}
