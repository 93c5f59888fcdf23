// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// memberKey is the context key of the member to which a connection leads.
type memberKey struct{}

// balancer leads each connection to a member of one cluster. The members share
// a storage, and each may answer in its own way.
type balancer struct {
	*fleettest.Front

	mu      sync.Mutex // protects what follows
	lead    func(made int) int
	made    int // connections
	conns   map[net.Conn]int
	answers map[int]fleettest.AnswerFunc
	asked   map[int]int // requests that a member answered as usual
}

// balanced returns a connected cluster with a watch and two members, the first
// of which has all connections. Its server has HTTP/2 if secure is true.
func balanced(t *testing.T, secure, netHTTP bool) (*clustercache.ClusterCache, *balancer, *fleettest.API) {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	api.Put("one", "1", nil)
	b := &balancer{
		Front:   fleettest.NewFront(t, secure, api),
		lead:    func(int) int { return 1 },
		conns:   map[net.Conn]int{},
		answers: map[int]fleettest.AnswerFunc{},
		asked:   map[int]int{},
	}
	b.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.made++
		member := b.lead(b.made)
		b.conns[c] = member
		return context.WithValue(ctx, memberKey{}, member)
	}
	b.Answer = func(r *http.Request) http.HandlerFunc {
		b.mu.Lock()
		defer b.mu.Unlock()
		member, _ := r.Context().Value(memberKey{}).(int)
		if answer := b.answers[member]; answer != nil {
			if handle := answer(r); handle != nil {
				return handle
			}
		}
		b.asked[member]++
		return nil
	}
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), b.Config())
	o := fleettest.Silent(d)
	o.NetHTTP = netHTTP
	o.Informers.StallTimeout = time.Hour // the server sends no bookmarks
	cc := fleettest.Start(t, o)
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	time.Sleep(5*time.Minute + 3*time.Second)
	return cc, b, api
}

// become changes how a member answers, and to which members new connections
// lead.
func (b *balancer) become(member int, answer fleettest.AnswerFunc, lead func(made int) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[member], b.lead = answer, lead
}

// stop breaks the connections of a member.
func (b *balancer) stop(member int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, of := range b.conns {
		if of == member {
			_ = c.Close()
			delete(b.conns, c)
		}
	}
}

// dials returns the number of connections, and served how many requests a
// member has answered as usual.
func (b *balancer) dials() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made
}

func (b *balancer) served(member int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[member]
}

func toSecond(int) int { return 2 }

// inTurn leads every second connection to the second member.
func inTurn(made int) int { return 1 + made%2 }

// eachTransport runs a test for each way in which requests are sent.
func eachTransport(t *testing.T, test func(t *testing.T, cc *clustercache.ClusterCache, b *balancer,
	api *fleettest.API)) {
	t.Helper()
	for name, way := range map[string]struct{ secure, netHTTP bool }{
		"http1":          {},
		"http2":          {secure: true},
		"http2 net/http": {secure: true, netHTTP: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, b, api := balanced(t, way.secure, way.netHTTP)
				test(t, cc, b, api)
			})
		})
	}
}

// only answers the requests for a path.
func only(path string, answer http.HandlerFunc) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if r.URL.Path == path {
			return answer
		}
		return nil
	}
}

// TestHazardDrainOfOneMemberIsTheEndOfTheCluster: a member drains before its
// end, and answers so, while another one is well. The cluster is idle, and its
// phase does not change.
func TestHazardDrainOfOneMemberIsTheEndOfTheCluster(t *testing.T) {
	eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, _ *fleettest.API) {
		phases, dials := recordPhases(t, cc), b.dials()
		b.become(1, only("/readyz", failingChecks("shutdown")), toSecond)
		time.Sleep(70 * time.Second)
		require.Positive(t, b.served(2), "requests go to the other member")
		before := b.served(1)
		require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		require.Equal(t, before, b.served(1))
		b.stop(1)
		time.Sleep(2 * time.Minute)
		require.Empty(t, phases())
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
		require.LessOrEqual(t, b.dials()-dials, 15) // over HTTP/1.1, each proof needs one
	})
}

// TestHazardBalancerThatNoticesLate: new connections lead to the draining
// member for a while. The cluster stays connected.
func TestHazardBalancerThatNoticesLate(t *testing.T) {
	eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, _ *fleettest.API) {
		phases := recordPhases(t, cc)
		b.become(1, only("/readyz", failingChecks("shutdown")), func(int) int { return 1 })
		time.Sleep(45 * time.Second)
		b.become(1, only("/readyz", failingChecks("shutdown")), toSecond)
		time.Sleep(45 * time.Second)
		b.stop(1)
		time.Sleep(time.Minute)
		require.Equal(t, []status.Phase{status.PhaseDegraded, status.PhaseReady}, phases())
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	})
}

// TestHazardOneMemberFails: what a member answers to every question, or that it
// answers none, does not disconnect a cluster whose other member is well.
func TestHazardOneMemberFails(t *testing.T) {
	for name, failure := range map[string]fleettest.AnswerFunc{
		"its gateway answers 503": everything(answer(http.StatusServiceUnavailable, "text/plain",
			"no healthy upstream")),
		"it hangs": everything(fakeapi.Hang),
		"it has no storage": withoutStorage(answer(http.StatusInternalServerError, "application/json",
			internalError)),
		"html": everything(answer(http.StatusOK, "text/html", "<html>")),
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, api *fleettest.API) {
				b.become(1, failure, toSecond)
				for range 180 {
					time.Sleep(time.Second)
					require.True(t, fleettest.Status(t, cc).Connected)
				}
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseReady, s.Phase)
				require.NoError(t, s.LastError)
				require.Equal(t, 1, s.Connects)
				require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
				api.Put("one", "2", nil)
				synctest.Wait()
				require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
			})
		})
	}
}

const unauthorized = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`

// rejecting answers like a member that cannot check credentials. What is public
// needs none, unless anonymous requests are forbidden.
func rejecting(anonymous bool) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if anonymous && (r.URL.Path == "/readyz" || r.URL.Path == "/version") {
			return nil
		}
		return answer(http.StatusUnauthorized, "application/json", unauthorized)
	}
}

// TestHazardMemberThatRejectsCredentialsIsTheCluster: the connection in use
// leads to a member that answers 401, and new ones to another. Reads, writes
// and new informers move on, and the cluster is well.
func TestHazardMemberThatRejectsCredentialsIsTheCluster(t *testing.T) {
	for _, anonymous := range []bool{true, false} {
		t.Run(fmt.Sprintf("anonymous %t", anonymous), func(t *testing.T) {
			eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, _ *fleettest.API) {
				phases := recordPhases(t, cc)
				b.become(1, rejecting(anonymous), toSecond)
				secrets, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{})
				require.NoError(t, err)
				time.Sleep(30 * time.Second)
				require.True(t, secrets.HasSynced())
				for range 30 {
					require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
					require.NoError(t, write(t, cc))
					time.Sleep(10 * time.Second)
				}
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseReady, s.Phase)
				require.NoError(t, s.LastError)
				require.Equal(t, 1, s.Connects)
				require.NotContains(t, phases(), status.PhaseDisconnected)
			})
		})
	}
}

// TestRejectionByAllMembersIsTold: the credentials are void.
func TestRejectionByAllMembersIsTold(t *testing.T) {
	eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, _ *fleettest.API) {
		// Or a connection may have to be made, and proven, for the next read.
		require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		synctest.Wait()
		b.become(2, rejecting(true), inTurn)
		b.become(1, rejecting(true), inTurn)
		dials := b.dials()
		require.Error(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		time.Sleep(time.Second)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		require.Equal(t, "Unauthorized", s.Reason)
		require.LessOrEqual(t, b.dials()-dials, 6)
	})
}

// TestHazardOneResourceRejectsCredentials: an extension server answers 401 for
// its own resource. That costs the other resources nothing.
func TestHazardOneResourceRejectsCredentials(t *testing.T) {
	eachTransport(t, func(t *testing.T, cc *clustercache.ClusterCache, b *balancer, api *fleettest.API) {
		refused := func(r *http.Request) http.HandlerFunc {
			if strings.HasPrefix(r.URL.Path, "/api/v1/secrets") || strings.HasSuffix(r.URL.Path, "/secrets/one") {
				return answer(http.StatusUnauthorized, "application/json", unauthorized)
			}
			return nil
		}
		b.become(1, refused, inTurn)
		b.become(2, refused, inTurn)
		phases, asked := recordPhases(t, cc), api.Count(kubeSystem)
		_, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{})
		require.NoError(t, err)
		dials := 0
		for minute := range 10 {
			if minute == 1 {
				dials = b.dials()
			}
			for range 60 {
				time.Sleep(time.Second)
				var secret corev1.Secret
				secret.Namespace, secret.Name = "default", "one"
				reader := cc.Cluster(fleettest.Key("a")).Reader()
				err := reader.Get(t.Context(), client.ObjectKeyFromObject(&secret), &secret, clustercache.LiveOnly)
				require.True(t, apierrors.IsUnauthorized(err), "%v", err)
			}
		}
		require.Empty(t, phases())
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
		if strings.HasPrefix(b.Config().Host, "https:") {
			require.LessOrEqual(t, api.Count(kubeSystem)-asked, 10*60/5+20, "one question in five seconds")
			require.Zero(t, b.dials()-dials, "the connection was not left")
		}
	})
}
