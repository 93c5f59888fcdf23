// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// request is the request type of a controller that knows nothing of sets.
type request string

func requests(_ context.Context, e watchset.Event) []request { return []request{request(line(e))} }

// drain returns the requests of a queue.
func drain(q workqueue.TypedRateLimitingInterface[request]) (all []request) {
	synctest.Wait()
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		all = append(all, r)
	}
	return all
}

func TestSourceQueuesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"))
		s := f.newSet(watchset.Options{DeliverLeft: true})
		f.replace(s, entries{"before": of("a", "")})

		first, second := fleettest.QueueOf[request](t), fleettest.QueueOf[request](t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		src := watchset.Source(s, requests)
		require.NoError(t, src.Start(ctx, first))
		require.NoError(t, src.Start(t.Context(), second), "another controller")
		for _, q := range []workqueue.TypedRateLimitingInterface[request]{first, second} {
			require.Equal(t, []request{"before a/one Added initial"}, drain(q))
		}

		f.replace(s, entries{"after": of("b", "")})
		for _, q := range []workqueue.TypedRateLimitingInterface[request]{first, second} {
			require.ElementsMatch(t, []request{"before a/one Deleted left", "after b/one Added initial"}, drain(q))
		}
		cancel()
		synctest.Wait()
		f.write(f.b, configMap("two"))
		require.Empty(t, drain(first))
		require.Equal(t, []request{"after b/two Added"}, drain(second))
	})
}

func TestSourceOfAnEndedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		s := f.newSet(watchset.Options{})
		q := fleettest.QueueOf[request](t)
		require.ErrorContains(t, watchset.Source[request](s, nil).Start(t.Context(), q), "mapping: required")
		s.Stop()
		require.ErrorIs(t, watchset.Source(s, requests).Start(t.Context(), q), clustercache.ErrClosed)
	})
}

func TestSourceMapsAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"))
		s := f.newSet(watchset.Options{})
		q := fleettest.QueueOf[request](t)
		first := true
		require.NoError(t, watchset.Source(s, func(ctx context.Context, e watchset.Event) []request {
			if first {
				first = false
				panic("not now")
			}
			return requests(ctx, e)
		}).Start(t.Context(), q))
		f.replace(s, entries{"e": of("a", "")})
		require.Empty(t, drain(q))
		time.Sleep(watchset.DefaultMinBackoff)
		require.Equal(t, []request{"e a/one Added initial"}, drain(q))
	})
}

// The controller of a Source may have ended while its mapping is being called.
func TestCloseAndReplaceWaitForAMappingWhoseControllerEnded(t *testing.T) {
	for _, end := range []func(*watchset.Set) error{
		func(s *watchset.Set) error { return s.Close(context.Background()) },
		func(s *watchset.Set) error {
			_, err := s.Replace(context.Background(), nil)
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, configMap("one"), configMap("two"))
			s := f.newSet(watchset.Options{})
			f.replace(s, entries{"e": of("a", "")})
			calls := 0
			controller, cancel := context.WithCancel(t.Context())
			src := watchset.Source(s, func(ctx context.Context, e watchset.Event) []request {
				calls++
				_ = dawdle(ctx, e)
				return nil
			})
			require.NoError(t, src.Start(controller, fleettest.QueueOf[request](t)))
			synctest.Wait()
			began := time.Now()
			cancel()
			synctest.Wait()
			require.NoError(t, end(s))
			require.Equal(t, time.Second, time.Since(began))
			require.Equal(t, 1, calls, "no call begins any more")
		})
	}
}

func TestMappingMayCloseAfterItsControllerEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"))
		s := f.newSet(watchset.Options{})
		controller, cancel := context.WithCancel(t.Context())
		src := watchset.Source(s, func(ctx context.Context, _ watchset.Event) []request {
			<-ctx.Done()
			require.NoError(t, s.Close(context.Background()))
			return nil
		})
		require.NoError(t, src.Start(controller, fleettest.QueueOf[request](t)))
		f.replace(s, entries{"e": of("a", "")})
		cancel()
		synctest.Wait()
		_, err := s.Replace(t.Context(), nil)
		require.ErrorIs(t, err, clustercache.ErrClosed)
	})
}
