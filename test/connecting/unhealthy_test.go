// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// answer returns a handler that answers everything alike.
func answer(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// failingChecks is what a kube-apiserver answers about its health.
func failingChecks(names ...string) http.HandlerFunc {
	body := "[+]ping ok\n[+]log ok\n"
	for _, name := range names {
		body += "[-]" + name + " failed: reason withheld\n"
	}
	body += "[+]informer-sync ok\nreadyz check failed\n"
	return answer(http.StatusInternalServerError, "text/plain; charset=utf-8", body)
}

const internalError = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,` +
	`"message":"Internal error occurred: etcdserver: request timed out"}`

// withoutStorage answers like a kube-apiserver whose etcd has stopped: what is
// in memory is served.
func withoutStorage(stored http.HandlerFunc) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/readyz":
			return failingChecks("etcd", "etcd-readiness")
		case !strings.HasPrefix(r.URL.Path, "/api/v1/"), q.Get("watch") == "true" && q.Get("sendInitialEvents") == "",
			r.Method == http.MethodGet && q.Get("resourceVersion") == "0":
			return nil
		}
		return stored
	}
}

// TestHazardServerWithoutStorageIsDead: the storage of an API server stops. Its
// watches go on, and so do cached reads, for as long as that lasts; the status
// names what fails.
func TestHazardServerWithoutStorageIsDead(t *testing.T) {
	for name, stored := range map[string]http.HandlerFunc{
		"answers 500": answer(http.StatusInternalServerError, "application/json", internalError),
		"hangs":       fakeapi.Hang,
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, http2 %t", name, secure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc, _, a, _ := fleettest.BehindProxy(t, secure)
					time.Sleep(time.Minute)
					phases := recordPhases(t, cc)
					a.Set(withoutStorage(stored))
					time.Sleep(15 * time.Second)
					for minute := range repeat.Times(60) {
						time.Sleep(time.Minute)
						s := fleettest.Status(t, cc)
						require.Equal(t, status.PhaseDegraded, s.Phase)
						require.Equal(t, status.ReasonUnhealthy, s.Reason)
						require.ErrorContains(t, s.LastError, "failing checks: etcd, etcd-readiness")
						require.True(t, apierrors.IsInternalError(s.LastError), "%v", s.LastError)
						require.True(t, s.Connected)
						require.Equal(t, 1, s.Connects)
						require.Zero(t, s.HistoryResets)
						require.Zero(t, s.Failures)
						require.WithinDuration(t, time.Now(), s.LastProbeSuccess, 11*time.Second)

						a.Put("one", fmt.Sprint(minute), nil) // what another server with storage would have written
						synctest.Wait()
						require.NoError(t, fleettest.Get(t, cc))
						require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
						require.Equal(t, []string{"uid-a"}, origins(t, cc))
						for gap := 0; a.Watching(fleettest.PathOf("ConfigMap")) == 0; gap++ {
							require.Less(t, gap, 70, "a watch that ended was not resumed")
							time.Sleep(time.Second)
						}
					}

					a.Heal()
					time.Sleep(30 * time.Second)
					s := fleettest.Status(t, cc)
					require.Equal(t, status.PhaseReady, s.Phase)
					require.NoError(t, s.LastError)
					require.Equal(t, 1, s.Connects)
					require.Equal(t, []status.Phase{status.PhaseDegraded, status.PhaseReady},
						phases())
				})
			})
		}
	}
}

// TestHazardGatewayIsTakenForTheServerBehindIt: a gateway that reaches no API
// server says nothing about its health, in whatever form.
func TestHazardGatewayIsTakenForTheServerBehindIt(t *testing.T) {
	for name, gateway := range map[string]http.HandlerFunc{
		"html 502":   answer(http.StatusBadGateway, "text/html", "<html>502 Bad Gateway</html>"),
		"text 503":   answer(http.StatusServiceUnavailable, "text/plain", "no healthy upstream"),
		"empty 504":  answer(http.StatusGatewayTimeout, "text/plain", ""),
		"empty 500":  answer(http.StatusInternalServerError, "text/plain", ""),
		"status 500": answer(http.StatusInternalServerError, "application/json", internalError),
		"status 503": answer(http.StatusServiceUnavailable, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				api.Set(everything(gateway))
				time.Sleep(45 * time.Second)
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseDisconnected, s.Phase)
				require.Equal(t, "Server", s.Reason)
				require.ErrorIs(t, fleettest.Get(t, cc), clustercache.ErrNotConnected)
			})
		})
	}
}

// TestClusterIsConnectedToASickServerAndNotToOneThatStarts: a process that
// begins while a server has no storage reads what the server has in memory. A
// server that starts is left alone: it may not know its rights and kinds yet.
func TestClusterIsConnectedToASickServerAndNotToOneThatStarts(t *testing.T) {
	first := func(t *testing.T, answer fleettest.AnswerFunc) (*clustercache.ClusterCache, *fleettest.API) {
		t.Helper()
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Set(answer)
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Minute)
		return cc, api
	}
	synctest.Test(t, func(t *testing.T) {
		cc, api := first(t, withoutStorage(answer(http.StatusInternalServerError, "application/json", internalError)))
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDegraded, s.Phase)
		require.Equal(t, status.ReasonUnhealthy, s.Reason)
		require.Equal(t, "uid-a", s.UID)
		api.Heal()
		time.Sleep(30 * time.Second)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	})
	synctest.Test(t, func(t *testing.T) {
		cc, api := first(t, func(r *http.Request) http.HandlerFunc {
			switch r.URL.Path {
			case "/readyz":
				return failingChecks("informer-sync", "poststarthook/rbac/bootstrap-roles")
			case "/api":
				return nil
			}
			return answer(http.StatusForbidden, "application/json",
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		})
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		require.Equal(t, status.ReasonUnhealthy, s.Reason)
		require.ErrorContains(t, s.LastError, "poststarthook/rbac/bootstrap-roles")
		require.Empty(t, s.UID)
		api.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, "uid-a", fleettest.Status(t, cc).UID)
	})
}

// TestHazardSickServerOfAnotherClusterIsTrusted: an address leads to another
// cluster, whose server is not well. That excuses no missing proof.
func TestHazardSickServerOfAnotherClusterIsTrusted(t *testing.T) {
	for name, stored := range map[string]http.HandlerFunc{
		"answers 500": answer(http.StatusInternalServerError, "application/json", internalError),
		"hangs":       fakeapi.Hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, a, b := fleettest.BehindProxy(t, true)
				a.Set(withoutStorage(stored))
				b.Set(withoutStorage(stored))
				time.Sleep(5 * time.Minute)
				require.Equal(t, []string{"uid-a"}, origins(t, cc))
				proxy.Move(b)
				proxy.Cut()
				neverMixed(t, cc)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
			})
		})
	}
	t.Run("says nothing about itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cc, proxy, _, b := fleettest.BehindProxy(t, true)
			b.Set(func(r *http.Request) http.HandlerFunc {
				switch {
				case r.URL.Path == "/readyz":
					return failingChecks("etcd")
				case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces"):
					return answer(http.StatusInternalServerError, "application/json", internalError)
				}
				return nil
			})
			proxy.Move(b)
			proxy.Cut()
			neverMixed(t, cc)
			require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-a")
			require.Equal(t, status.PhaseDegraded, fleettest.Status(t, cc).Phase)
		})
	})
}
