// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// seats is a priority level of API Priority and Fairness in front of a server:
// some requests are served at once, some wait in a queue, and the rest is
// refused.
type seats struct {
	next http.Handler
	mute bool // refusals have no Retry-After

	mu         sync.Mutex // protects the fields below
	seats      int
	queue      int
	service    time.Duration // of a list; of anything else it is a twentieth
	inside     int
	waiting    []chan struct{}
	served     int // lists
	refused    int
	retryAfter int64
	raised     int64         // when retryAfter was last doubled, in seconds
	drops      map[int64]int // refusals by second
}

// ServeHTTP implements http.Handler.
func (s *seats) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	turn, service, retryAfter := s.enter()
	if turn == nil {
		if !s.mute {
			w.Header().Set("Retry-After", strconv.FormatInt(retryAfter, 10))
		}
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		return
	}
	<-turn
	q := r.URL.Query()
	list := (q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") && q.Get("limit") != "1" &&
		!strings.Contains(q.Get("fieldSelector"), "metadata.name")
	if !list {
		service /= 20
	}
	time.Sleep(service)
	s.leave(list)
	s.next.ServeHTTP(w, r)
}

// enter returns what is closed when a request is served; nil refuses it.
func (s *seats) enter() (turn chan struct{}, service time.Duration, retryAfter int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn = make(chan struct{})
	switch {
	case s.inside < s.seats:
		s.inside++
		close(turn)
	case len(s.waiting) < s.queue:
		s.waiting = append(s.waiting, turn)
	default:
		s.refused++
		return nil, 0, s.dropLocked()
	}
	return turn, s.service, 0
}

// limit limits the requests that begin from now on.
func (s *seats) limit(seats, queue int, service time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats, s.queue, s.service, s.served = seats, queue, service, 0
}

// dropLocked counts a refusal, and returns its Retry-After: as in
// k8s.io/apiserver's util/flowcontrol, it doubles while three requests a second
// are refused, and falls while it is fewer than one.
func (s *seats) dropLocked() int64 {
	now := time.Now().Unix()
	if s.drops == nil {
		s.drops, s.retryAfter = map[int64]int{}, 1
	}
	if s.drops[now] == 0 {
		lately := 0
		for at := now - s.retryAfter; at < now; at++ {
			lately += s.drops[at]
		}
		switch {
		case now-s.raised >= s.retryAfter && lately >= 3*int(s.retryAfter):
			s.retryAfter, s.raised = min(2*s.retryAfter, 32), now
		case lately < int(s.retryAfter):
			s.retryAfter = max(s.retryAfter-1, 1)
		}
	}
	s.drops[now]++

	return s.retryAfter
}

func (s *seats) leave(list bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list {
		s.served++
	}
	if len(s.waiting) == 0 {
		s.inside--
		return
	}
	close(s.waiting[0])
	s.waiting = s.waiting[1:]
}

// counts returns how many lists were served, and how many requests refused.
func (s *seats) counts() (served, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.refused
}

// kinds registers n kinds, each in the group that a function returns for it,
// and returns their resources.
func kinds(api *fleettest.API, n int, group func(n int) string) (resources []schema.GroupVersionResource) {
	for i := range n {
		name := "Kind" + strconv.Itoa(i)
		api.Fake.Register(fakeapi.Kind{Group: group(i), Kind: name})
		resources = append(resources,
			schema.GroupVersionResource{Group: group(i), Version: "v1", Resource: strings.ToLower(name) + "s"})
	}
	return resources
}

// in returns the key of a resource in a cluster.
func in(cluster string, r schema.GroupVersionResource) informerpool.Key {
	return informerpool.Key{
		Cluster:  types.NamespacedName{Namespace: "fleet", Name: cluster},
		Resource: r,
		Kind:     "K" + strings.TrimSuffix(r.Resource, "s")[1:],
	}
}

// acquire acquires a lease on each resource.
func acquire(t *testing.T, p *informerpool.Pool, cluster string,
	resources []schema.GroupVersionResource) (leases []*informerpool.Lease) {
	t.Helper()
	for _, r := range resources {
		l, err := p.Acquire(t.Context(), in(cluster, r))
		require.NoError(t, err)
		leases = append(leases, l)
	}
	return leases
}

// synced returns how many of the leases have synced.
func synced(leases []*informerpool.Lease) (n int) {
	for _, l := range leases {
		if l.Status().Synced {
			n++
		}
	}
	return n
}
