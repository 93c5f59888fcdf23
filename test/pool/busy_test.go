// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// many is how many kinds are watched at once.
const many = 60

// pool returns a pool of clusters that are served by APIs. It must be closed by
// the caller.
func pool(t *testing.T, o informerpool.Options, apis map[string]*fleettest.API) (p *informerpool.Pool, stop func()) {
	t.Helper()
	endpoints := map[string]informerpool.Endpoint{}
	for name, api := range apis {
		config := api.Config()
		c, err := rest.HTTPClientFor(config)
		require.NoError(t, err)
		endpoints[name] = informerpool.Endpoint{Client: c, URL: config.Host}
	}
	o.Source = informerpool.FromREST(func(_ context.Context, c types.NamespacedName) (informerpool.Endpoint, error) {
		return endpoints[c.Name], nil
	})
	p, err := informerpool.New(o)
	require.NoError(t, err)

	return p, func() { require.NoError(t, p.Close(context.Background())) }
}

func custom(int) string { return "example.com" }

// TestHazardManyKindsOfABusyServerBackOffAlone: a server with few seats and a
// short queue has listed all kinds within twice the time that it needs for
// them. It is asked once for each list that it serves, and refuses less than it
// does of client-go's informers.
func TestHazardManyKindsOfABusyServerBackOffAlone(t *testing.T) {
	for name, c := range map[string]struct {
		seats, queue int
		service      time.Duration
		paged, mute  bool
		group        func(n int) string
	}{
		"one seat":                 {seats: 1, queue: 4, service: time.Second},
		"one seat, slow":           {seats: 1, queue: 4, service: 5 * time.Second},
		"one seat, quick":          {seats: 1, queue: 4, service: 200 * time.Millisecond},
		"one seat, no queue":       {seats: 1, service: time.Second},
		"one seat, paged":          {seats: 1, queue: 4, service: time.Second, paged: true},
		"two seats":                {seats: 2, queue: 2, service: 2 * time.Second},
		"ten seats":                {seats: 10, queue: 5, service: 2 * time.Second},
		"ten seats, no queue":      {seats: 10, service: 2 * time.Second, paged: true},
		"without Retry-After":      {seats: 1, queue: 4, service: time.Second, mute: true},
		"kinds of Kubernetes":      {seats: 1, queue: 4, service: time.Second, group: builtIn},
		"each kind in a group":     {seats: 1, queue: 4, service: time.Second, group: groupOfItsOwn},
		"each kind, paged, slower": {seats: 2, queue: 4, service: 3 * time.Second, group: groupOfItsOwn, paged: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.group == nil {
				c.group = custom
			}
			newServer := func(t *testing.T) (*seats, *fleettest.API, []schema.GroupVersionResource) {
				t.Helper()
				api := fleettest.NewAPI(t, "uid-a")
				server := &seats{next: api, seats: c.seats, queue: c.queue, service: c.service, mute: c.mute}
				api.Handler = server
				return server, api, kinds(api, many, c.group)
			}
			limit := 2 * many * c.service / time.Duration(c.seats)
			refusals := 0
			synctest.Test(t, func(t *testing.T) {
				server, api, resources := newServer(t)
				p, stop := pool(t, informerpool.Options{PagedLists: c.paged}, map[string]*fleettest.API{"a": api})
				defer stop()
				began := time.Now()
				leases := acquire(t, p, "a", resources)
				time.Sleep(c.service + c.service/2)
				synctest.Wait()
				requireTold(t, leases, c.seats+c.queue)

				ctx, cancel := context.WithDeadline(t.Context(), began.Add(limit))
				defer cancel()
				for _, l := range leases {
					if l.WaitForSync(ctx) != nil {
						break
					}
				}
				var served int
				served, refusals = server.counts()
				t.Logf("%s of %s: %d lists, %d refusals", time.Since(began), limit, served, refusals)
				require.Equal(t, many, synced(leases))
				require.LessOrEqual(t, served, many+many/10)
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, l := range leases {
					require.NoError(t, l.Status().LastError)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				server, api, resources := newServer(t)
				n := theirs(t, api.Config(), resources, limit)
				served, refused := server.counts()
				t.Logf("client-go: %d kinds, %d lists, %d refusals", n, served, refused)
				require.Less(t, refusals, refused)
			})
		})
	}
}

func builtIn(int) string { return "batch" }

func groupOfItsOwn(n int) string {
	return string(rune('a'+n%26)) + string(rune('a'+n/26)) + ".example.com"
}

// theirs returns how many of client-go's informers have synced within a time.
func theirs(t *testing.T, config *rest.Config, resources []schema.GroupVersionResource, within time.Duration) (n int) {
	t.Helper()
	config.QPS = -1
	c, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	for _, r := range resources {
		factory.ForResource(r).Informer()
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	time.Sleep(within)
	for _, r := range resources {
		if factory.ForResource(r).Informer().HasSynced() {
			n++
		}
	}
	cancel()
	factory.Shutdown()

	return n
}

// requireTold requires that each informer that has not synced says why, but for
// as many as the server may be serving.
func requireTold(t *testing.T, leases []*informerpool.Lease, serving int) {
	t.Helper()
	told, untold := 0, 0
	for _, l := range leases {
		switch s := l.Status(); {
		case s.Synced:
		case apierrors.IsTooManyRequests(s.LastError):
			told++
		default:
			untold++
		}
	}
	require.Positive(t, told)
	require.LessOrEqual(t, untold, serving)
}

// TestGuaranteeOneClustersRefusalsCostItAlone: while a cluster refuses all its
// lists, another one of the pool lists at once, although there are few permits;
// and if a cluster refuses one kind alone, or those of one aggregated API, its
// other kinds are listed at once.
func TestGuaranteeOneClustersRefusalsCostItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(matches func(*http.Request) bool) fleettest.AnswerFunc {
			return func(r *http.Request) http.HandlerFunc {
				if !matches(r) {
					return nil
				}
				return func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", "30")
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}
		}
		busy, well := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b")
		busy.Set(refuse(func(*http.Request) bool { return true }))
		those, ours := kinds(busy, many, custom), kinds(well, many, custom)
		more := kinds(well, 3, func(int) string { return "metrics.example.org" })
		p, stop := pool(t, informerpool.Options{ListConcurrency: 2, PermitTimeout: time.Hour},
			map[string]*fleettest.API{"busy": busy, "well": well})
		defer stop()
		waiting := acquire(t, p, "busy", those)
		time.Sleep(time.Second)
		prompt := func(resources []schema.GroupVersionResource) {
			t.Helper()
			began := time.Now()
			for _, l := range acquire(t, p, "well", resources) {
				require.NoError(t, l.WaitForSync(t.Context()))
			}
			require.Less(t, time.Since(began), time.Second)
		}
		prompt(ours[:5])
		require.Zero(t, synced(waiting))

		// The first kind is refused alone, and then every kind of another API.
		odd := ours[5].Resource
		well.Set(refuse(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+odd) }))
		acquire(t, p, "well", ours[5:6])
		time.Sleep(time.Second)
		prompt(ours[6:15])
		time.Sleep(2 * time.Minute)
		prompt(ours[15:25])

		well.Set(refuse(func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/"+odd) || strings.Contains(r.URL.Path, "/metrics.example.org/")
		}))
		acquire(t, p, "well", more)
		time.Sleep(time.Second)
		prompt(ours[25:35])
		time.Sleep(2 * time.Minute)
		prompt(ours[35:])
		requests := well.Count("stream /apis/example.com/v1/" + odd)
		require.Less(t, requests, 15, "it is asked when Retry-After is over")

		busy.Heal()
		well.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, many, synced(waiting))
	})
}

// TestManyKindsOfABusyServerResume: a connection that breaks costs a server
// with one seat no list.
func TestManyKindsOfABusyServerResume(t *testing.T) {
	for name, paged := range map[string]bool{"streamed": false, "paged": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fleettest.NewAPI(t, "uid-a")
				server := &seats{next: api, seats: 1000}
				api.Handler = server
				resources := kinds(api, many, custom)
				p, stop := pool(t, informerpool.Options{PagedLists: paged}, map[string]*fleettest.API{"a": api})
				defer stop()
				leases := acquire(t, p, "a", resources)
				for _, l := range leases {
					require.NoError(t, l.WaitForSync(t.Context()))
				}
				time.Sleep(time.Minute)
				server.limit(1, 4, time.Second)
				api.Cut()
				time.Sleep(2 * 2 * many * time.Second / 20) // a question and a watch each
				synctest.Wait()
				served, refused := server.counts()
				t.Logf("%d lists, %d refusals", served, refused)
				require.Zero(t, served)
				for _, l := range leases {
					s := l.Status()
					require.NoError(t, s.LastError)
					require.Equal(t, informerpool.StateSynced, s.State)
				}
			})
		})
	}
}
