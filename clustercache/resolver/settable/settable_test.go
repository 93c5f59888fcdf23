// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package settable_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	east = resolvertest.Named("east")
	west = resolvertest.Named("west")
)

func access(t testing.TB, token string) resolver.Access {
	t.Helper()
	a, err := resolver.NewAccess(&rest.Config{Host: "https://c.example", BearerToken: token})
	require.NoError(t, err)
	return a
}

// notify returns reports that have begun.
func notify(t *testing.T, r *settable.Resolver) *resolvertest.Recorder {
	t.Helper()
	reports := resolvertest.Notify(t, r)
	synctest.Wait()
	return reports
}

func resolve(r resolver.Resolver, cluster resolver.Cluster) error {
	_, err := r.Resolve(context.Background(), cluster)
	return err
}

func TestSetIsReportedAndResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settable.New()
		reports := notify(t, r)
		r.Set(east, access(t, "one"), nil)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		require.Equal(t, "one", resolvertest.Token(t, r, east))

		r.Set(east, access(t, "one"), nil)
		require.Empty(t, reports.Take(), "an equal access is no change")
		r.Set(east, access(t, "two"), nil)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		require.Equal(t, "two", resolvertest.Token(t, r, east))

		later := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{east}, later.Take(), "a new subscriber begins with what is known")
	})
}

func TestErrorsKeepTheClusterKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settable.New()
		reports := notify(t, r)
		cause := errors.New("quota is used up")
		r.Set(east, access(t, "one"), cause)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		err := resolve(r, east)
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, "cluster east: quota is used up")
		require.NotErrorIs(t, err, resolver.ErrNoAccess)

		r.Set(east, resolver.Access{}, errors.New("quota is used up"))
		require.Empty(t, reports.Take(), "an error with the same text is no change")
		r.Set(east, resolver.Access{}, nil)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		require.ErrorIs(t, resolve(r, east), resolver.ErrNotReady, "neither access nor error")
		r.Synced()
		known, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []resolver.Cluster{east}, known)

		named := &resolver.AccessError{Cluster: east, Ref: resolver.ObjectRef{Kind: "Secret", Name: "s"}, Err: cause}
		r.Set(east, resolver.Access{}, named)
		require.Same(t, named, resolve(r, east), "it already names the cluster")
		r.Set(west, resolver.Access{}, named)
		require.EqualError(t, resolve(r, west), "cluster west: cluster east: Secret s: quota is used up")
	})
}

// TestNothingIsGoneBeforeSynced: a reconciler that has not seen every object
// yet must not make the caches of clusters that exist end.
func TestNothingIsGoneBeforeSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settable.New()
		reports := notify(t, r)
		err := resolve(r, east)
		require.ErrorIs(t, err, resolver.ErrNotReady)
		require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
		require.EqualError(t, err, "cluster east: the cluster was not set yet")

		r.Delete(east)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		require.ErrorIs(t, resolve(r, east), resolver.ErrClusterNotFound, "it was said to be gone")
		r.Delete(east)
		require.Empty(t, reports.Take())
		r.Set(east, access(t, "one"), nil)
		require.NoError(t, resolve(r, east))
		r.Delete(east)
		require.ErrorIs(t, resolve(r, east), resolver.ErrClusterNotFound)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())

		require.ErrorIs(t, resolve(r, west), resolver.ErrNotReady)
		r.Synced()
		r.Synced()
		require.ErrorIs(t, resolve(r, west), resolver.ErrClusterNotFound)
	})
}

func TestClustersAreListedOnceSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settable.New()
		r.Set(west, access(t, "w"), nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		failed := make(chan error, 1)
		go func() { _, err := r.Clusters(ctx); failed <- err }()
		listed := make(chan []resolver.Cluster, 1)
		go func() {
			known, err := r.Clusters(t.Context())
			require.NoError(t, err)
			listed <- known
		}()
		synctest.Wait()
		cancel(cause)
		require.ErrorIs(t, <-failed, cause)
		require.Empty(t, listed, "a part of the clusters is no answer")

		r.Set(east, access(t, "e"), nil)
		r.Synced()
		require.Equal(t, []resolver.Cluster{east, west}, <-listed)
	})
}

func TestReplaceReportsOnlyDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settable.New()
		north := resolvertest.Named("north")
		r.Replace(map[resolver.Cluster]settable.Answer{
			east:  {Access: access(t, "e")},
			west:  {Access: access(t, "w")},
			north: {Err: resolver.ErrNotReady},
		})
		reports := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{east, north, west}, reports.Take())
		r.Replace(map[resolver.Cluster]settable.Answer{
			east:  {Access: access(t, "e")},
			north: {Access: access(t, "n")},
		})
		require.Equal(t, []resolver.Cluster{north, west}, reports.Take())
		require.ErrorIs(t, resolve(r, west), resolver.ErrClusterNotFound)
		require.Equal(t, "n", resolvertest.Token(t, r, north))
		known, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []resolver.Cluster{east, north}, known)
	})
}

// TestRandomCallsMatchAModel compares every answer, and the last report of each
// cluster, with a map.
func TestRandomCallsMatchAModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
			r := settable.New()
			model, seen := map[resolver.Cluster]string{}, map[resolver.Cluster]string{}
			look := func(cluster resolver.Cluster) string {
				a, err := r.Resolve(t.Context(), cluster)
				if err != nil {
					return ""
				}
				return a.Config().BearerToken
			}
			reports := notify(t, r)
			for range 200 {
				cluster, token := resolvertest.Named(strconv.Itoa(random.IntN(5))), strconv.Itoa(random.IntN(3))
				switch random.IntN(5) {
				case 0:
					delete(model, cluster)
					r.Delete(cluster)
				case 1:
					model = map[resolver.Cluster]string{cluster: token}
					r.Replace(map[resolver.Cluster]settable.Answer{cluster: {Access: access(t, token)}})
				default:
					model[cluster] = token
					r.Set(cluster, access(t, token), nil)
				}

				for _, changed := range reports.Take() {
					seen[changed] = look(changed)
				}
				for i := range 5 {
					cluster := resolvertest.Named(strconv.Itoa(i))
					require.Equal(t, model[cluster], look(cluster))
					require.Equal(t, model[cluster], seen[cluster], "a change that was not reported")
				}
			}
		})
	}
}
