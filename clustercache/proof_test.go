// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

const kubeSystem = "get /api/v1/namespaces/kube-system"

// front is a proxy that keeps its clients' connections while its backend
// changes.
type front struct {
	net     *memnet.Listener
	tls     bool
	mu      sync.Mutex // protects what follows
	shown   *tls.Certificate
	behind  *fakeAPI
	written map[string]int // writes by the uid of the cluster that got them
	cuts    map[context.Context]context.CancelFunc

	// connContext and choose, if set, lead requests to another server than
	// behind.
	connContext func(context.Context, net.Conn) context.Context
	choose      func(*http.Request) *fakeAPI
}

func newFront(t *testing.T, secure bool, behind *fakeAPI) *front {
	t.Helper()
	f := &front{net: memnet.Listen(), tls: secure, behind: behind, written: map[string]int{}, cuts: map[context.Context]context.CancelFunc{}}
	server := &http.Server{Handler: f, ErrorLog: discardLog} //nolint:gosec // in memory
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if f.connContext != nil {
			return f.connContext(ctx, c)
		}
		return ctx
	}
	done := make(chan struct{})
	if secure {
		f.renew(t)
		server.TLSConfig = &tls.Config{GetCertificate: f.certificate} //nolint:gosec // in memory
	}
	go func() {
		defer close(done)
		if secure {
			_ = server.ServeTLS(f.net, "", "")
			return
		}
		_ = server.Serve(f.net)
	}()
	t.Cleanup(func() {
		f.cut()
		_ = server.Close()
		_ = f.net.Close()
		<-done
	})
	return f
}

// renew replaces the certificate of new connections.
func (f *front) renew(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(99, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (f *front) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown, nil
}

func (f *front) config() *rest.Config {
	c := &rest.Config{Host: "http://front.test", BearerToken: "t", Dial: f.net.Dial}
	if f.tls {
		c.Host, c.TLSClientConfig = "https://front.test", rest.TLSClientConfig{Insecure: true}
	}
	return c
}

// reset breaks the connections.
func (f *front) reset() { f.net.Reset() }

func (f *front) move(to *fakeAPI) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = to
}

// cut ends the running requests, and no connection.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.cuts {
		cancel()
	}
}

func (f *front) wrote(uid string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written[uid]
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	f.mu.Lock()
	behind := f.behind
	if f.choose != nil {
		behind = f.choose(r)
	}
	f.cuts[ctx] = cancel
	if r.Method != http.MethodGet {
		f.written[behind.identity()]++
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.cuts, ctx)
		f.mu.Unlock()
		cancel()
	}()
	if r.Method != http.MethodGet {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"namespace": "default", "name": "new"}})
		return
	}
	behind.ServeHTTP(w, r.WithContext(ctx))
}

// twoClusters returns two API servers that hold objects of the same versions.
func twoClusters(t *testing.T) (a, b *fakeAPI) {
	t.Helper()
	a, b = newFakeAPI(t, "uid-a"), newFakeAPI(t, "uid-b")
	for _, name := range []string{"one", "two", "three"} {
		a.put(name, "1", nil)
	}
	for _, name := range []string{"four", "five", "six"} {
		b.put(name, "1", nil)
	}
	return a, b
}

// origins returns the clusters whose objects a list has.
func origins(t *testing.T, cc *clustercache.ClusterCache) []string {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, cc.Reader(key("a")).List(t.Context(), &list))
	var in []string
	for _, item := range list.Items {
		in = append(in, item.Data["in"])
	}
	slices.Sort(in)
	return slices.Compact(in)
}

func write(t *testing.T, cc *clustercache.ClusterCache) error {
	t.Helper()
	c, err := cc.Client(key("a"))
	require.NoError(t, err)
	return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}})
}

// TestHazardProxyKeepsConnectionsAcrossClusters: a minute after a proxy has
// switched to another cluster, no read has objects of both clusters or of the
// former one, the epoch returned with a read is that of its objects, and no
// write meant for one cluster reaches the other. Only the identity shows the
// change: the versions are the same, and no connection breaks.
func TestHazardProxyKeepsConnectionsAcrossClusters(t *testing.T) {
	for name, tc := range map[string]struct{ secure, watched, resumes bool }{
		"http1, a watch that stays":  {watched: true},
		"http1, a watch that is cut": {watched: true, resumes: true},
		"http2, a watch that stays":  {secure: true, watched: true},
		"http2, a watch that is cut": {secure: true, watched: true, resumes: true},
		"http1, nothing watched":     {},
		"http2, nothing watched":     {secure: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := twoClusters(t)
				proxy, d := newFront(t, tc.secure, a), newDirectory()
				d.set(key("a"), proxy.config())
				cc := start(t, silent(d))
				require.NoError(t, cc.Engage(key("a")))
				require.NoError(t, cc.WaitConnected(t.Context(), key("a")))
				if tc.watched {
					require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
				}
				require.Equal(t, []string{"uid-a"}, origins(t, cc))
				require.NoError(t, write(t, cc))
				time.Sleep(8*time.Minute + 17*time.Second)

				proxy.move(b)
				if tc.resumes {
					proxy.cut()
				}
				b.put("seven", "1", nil)
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				before := proxy.wrote("uid-b")
				require.Contains(t, status(t, cc).Epoch, "uid-b")
				require.Equal(t, []string{"uid-b"}, origins(t, cc))
				var from clustercache.Origin
				var four corev1.ConfigMap
				require.NoError(t, cc.Reader(key("a")).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "four"}, &four,
					&from))
				require.Contains(t, from.Epoch, four.Data["in"])
				require.Zero(t, before)
				require.Equal(t, 1, proxy.wrote("uid-a"))
				require.Equal(t, 1, status(t, cc).HistoryResets)
			})
		})
	}
}

// TestHazardProxySwitchesRightAfterAProof: a recent proof does not admit a
// watch that has ended since, with the versions of one cluster in another.
func TestHazardProxySwitchesRightAfterAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoClusters(t)
		proxy, d := newFront(t, true, a), newDirectory()
		d.set(key("a"), proxy.config())
		cc := start(t, silent(d))
		require.NoError(t, cc.Engage(key("a")))
		require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
		proxy.move(b)
		proxy.cut()
		b.put("seven", "1", nil)
		for range 20 {
			time.Sleep(time.Second)
			require.Len(t, origins(t, cc), 1)
		}
		require.Equal(t, []string{"uid-b"}, origins(t, cc))
	})
}

// TestHazardWriteReachesAnotherCluster: a write relies on a proof. If the proof
// is too old, for example after the process did not run for a while, it is
// renewed before anything is sent.
func TestHazardWriteReachesAnotherCluster(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoClusters(t)
			proxy, d := newFront(t, secure, a), newDirectory()
			d.set(key("a"), proxy.config())
			cc := start(t, silent(d))
			require.NoError(t, cc.Engage(key("a")))
			require.NoError(t, cc.WaitConnected(t.Context(), key("a")))
			epoch := status(t, cc).Epoch
			for range 20 {
				time.Sleep(30 * time.Second)
				require.NoError(t, write(t, cc))
			}
			// kube-system hangs, so that the proof cannot be renewed and no new
			// epoch begins.
			proxy.move(b)
			b.failWith(-1, "/kube-system")
			time.Sleep(time.Minute)
			sent := proxy.wrote("uid-b")
			for range 20 {
				time.Sleep(10 * time.Second)
				require.ErrorContains(t, write(t, cc), "")
				require.Error(t, cc.Reader(key("a")).List(t.Context(), &corev1.ConfigMapList{}))
			}
			require.Equal(t, sent, proxy.wrote("uid-b"))
			require.Equal(t, epoch, status(t, cc).Epoch)
			b.heal()
			time.Sleep(time.Minute)
			require.Contains(t, status(t, cc).Epoch, "uid-b")
			require.NoError(t, write(t, cc))
		})
	}
}

// TestHazardNewConnectionsReachAnotherCluster: the address leads to another
// cluster from now on, but connections that were made before stay with the old
// one, including the one that identity queries use. A watch that continues over
// a new connection must not append the new cluster's events to the old one's
// history, and no read of one cluster is returned as the other's.
func TestHazardNewConnectionsReachAnotherCluster(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoClusters(t)
			old, other, d := newFront(t, secure, a), newFront(t, secure, b), newDirectory()
			var to sync.Map
			to.Store("net", old.net)
			config := old.config()
			config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				l, _ := to.Load("net")
				return l.(*memnet.Listener).Dial(ctx, network, address)
			}
			d.set(key("a"), config)
			cc := start(t, silent(d))
			w := watch(t, cc)
			require.NoError(t, w.WaitForSync(t.Context()))
			require.NoError(t, write(t, cc))
			time.Sleep(10 * time.Second)

			to.Store("net", other.net)
			b.put("seven", "1", nil)
			// Many live reads at a time, so that HTTP/1.1 needs new connections
			// while an old one is idle.
			var reads sync.WaitGroup
			for range 20 {
				reads.Go(func() {
					var from clustercache.Origin
					var got corev1.ConfigMapList
					err := cc.Reader(key("a")).List(t.Context(), &got, &from, client.InNamespace("default"))
					for _, item := range got.Items {
						if err == nil {
							require.Contains(t, from.Epoch, item.Data["in"])
						}
					}
				})
				reads.Go(func() {
					live, err := cc.LiveClient(key("a"))
					require.NoError(t, err)
					var four corev1.ConfigMap
					epoch := status(t, cc).Epoch
					err = live.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "four"}, &four)
					if err == nil && epoch == status(t, cc).Epoch {
						require.Contains(t, epoch, "uid-b")
					}
				})
			}
			reads.Wait()
			old.cut() // the watch continues over whatever connection exists
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			in := origins(t, cc)
			require.Len(t, in, 1, "of two clusters: %v", in)
			require.Contains(t, status(t, cc).Epoch, in[0])
		})
	}
}

// TestProofCostsOneQuestionAMinute: whatever runs, an idle cluster gets one
// identity query a minute, and one for each connection that was made meanwhile;
// informers that recover share one query.
func TestProofCostsOneQuestionAMinute(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newFakeAPI(t, "uid-a")
			proxy, d := newFront(t, secure, a), newDirectory()
			d.set(key("a"), proxy.config())
			o := silent(d)
			o.Informers.StallTimeout = 24 * time.Hour // the server sends no bookmarks
			cc := start(t, o)
			for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.Endpoints{}, &corev1.ServiceAccount{}} { //nolint:staticcheck // as good as any
				w, err := cc.Watch(t.Context(), key("a"), obj)
				require.NoError(t, err)
				require.NoError(t, w.WaitForSync(t.Context()))
			}
			asked := func() (questions, connections int) { return a.count(kubeSystem), proxy.net.Dials() }
			questions, connections := asked()
			t.Logf("secure %v: %d questions and %d connections until 5 informers were synced", secure, questions, connections)
			require.LessOrEqual(t, questions, connections)
			time.Sleep(2 * time.Minute)

			restQuestions, restConnections := asked()
			for range 60 {
				time.Sleep(30 * time.Second)
				require.NoError(t, write(t, cc))
				origins(t, cc)
			}
			questions, connections = asked()
			t.Logf("secure %v: %d and %d at rest", secure, questions-restQuestions, connections-restConnections)
			require.LessOrEqual(t, questions-restQuestions, 31+connections-restConnections)
			require.GreaterOrEqual(t, questions-restQuestions, 29)

			// Proofs are renewed at full minutes. A proof that is renewed at
			// the moment when the watches end may be older than that, and be
			// followed by another one.
			time.Sleep(7 * time.Second)
			healQuestions, healConnections := asked()
			proxy.cut()
			time.Sleep(20 * time.Second)
			require.Equal(t, 5, a.watching("/api/v1/configmaps")+a.watching("/api/v1/secrets")+a.watching("/api/v1/services")+
				a.watching("/api/v1/endpoints")+a.watching("/api/v1/serviceaccounts"))
			questions, connections = asked()
			t.Logf("secure %v: %d and %d while 5 informers healed", secure, questions-healQuestions, connections-healConnections)
			require.LessOrEqual(t, questions-healQuestions, 1+connections-healConnections)
		})
	}
}
