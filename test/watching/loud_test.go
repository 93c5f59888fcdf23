// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestHazardOutageIsLoggedByEachInformer: a hundred informers of several kinds
// are interrupted by the same thing. The log has a line of the first for each
// cause, and those of the cluster.
func TestHazardOutageIsLoggedByEachInformer(t *testing.T) {
	cut := func(a *fleettest.API) { a.Fake.Cut(func(*fakeapi.Request) bool { return true }) }
	for name, outage := range map[string]struct {
		begin, end func(a *fleettest.API)
		lasts      time.Duration
	}{
		"restart":      {begin: (*fleettest.API).Die, lasts: 3 * time.Second, end: (*fleettest.API).Live},
		"long restart": {begin: (*fleettest.API).Die, lasts: 5 * time.Minute, end: (*fleettest.API).Live},
		"connection":   {begin: (*fleettest.API).Cut, lasts: time.Second, end: func(*fleettest.API) {}},
		"watches": {begin: func(a *fleettest.API) {
			a.FailIf(http.StatusInternalServerError, func(r *http.Request) bool { return r.URL.Path != "/readyz" })
			cut(a)
		}, lasts: 20 * time.Second, end: (*fleettest.API).Heal},
		"unavailable": {begin: func(a *fleettest.API) {
			a.FailWith(http.StatusServiceUnavailable, "/")
			cut(a)
		}, lasts: 20 * time.Second, end: (*fleettest.API).Heal},
		"restore": {begin: func(a *fleettest.API) {
			backup := a.Fake.Snapshot()
			for i := range 5 {
				a.Put("later", fmt.Sprint(i), nil)
			}
			a.Fake.Bookmark()
			synctest.Wait()
			a.Fake.Restore(backup)
		}, lasts: time.Second, end: func(*fleettest.API) {}},
		"unauthorized": {begin: func(a *fleettest.API) {
			a.FailIf(http.StatusUnauthorized, func(r *http.Request) bool { return r.URL.Path != "/readyz" })
			cut(a)
		}, lasts: 20 * time.Second, end: (*fleettest.API).Heal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := &fleettest.Logbook{}
				a, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), a.Config())
				options := fleettest.Silent(d)
				options.Logger = book.Logger()
				cc := fleettest.Start(t, options)
				for i := range repeat.Times(25) {
					for _, kind := range []client.Object{
						&corev1.ConfigMap{}, &corev1.Secret{}, &appsv1.Deployment{}, &coordinationv1.Lease{},
					} {
						namespace := client.InNamespace(fmt.Sprintf("%c", 'a'+i))
						w, err := cc.Cluster(keyOfA).Watch(t.Context(), kind, namespace)
						require.NoError(t, err)
						require.NoError(t, w.WaitForSync(t.Context()))
					}
				}
				for range repeat.Times(3) {
					time.Sleep(10 * time.Minute) // what failed before is forgotten
					synctest.Wait()
					before := len(book.Lines)
					outage.begin(a)
					time.Sleep(outage.lasts)
					outage.end(a)
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					require.LessOrEqual(t, len(book.Lines)-before, 10, book.Lines[before:])
					require.LessOrEqual(t, book.Count("Informer interrupted"), 12, book.Lines)
				}
				require.NotEmpty(t, book.Lines)
			})
		})
	}
}

// TestInformersOwnFaultIsLoggedBesideTheOutage of its cluster.
func TestInformersOwnFaultIsLoggedBesideTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &fleettest.Logbook{}
		a, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), a.Config())
		options := fleettest.Silent(d)
		options.Logger = book.Logger()
		cc := fleettest.Start(t, options)
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		secrets, err := cc.Cluster(keyOfA).Watch(t.Context(), &corev1.Secret{})
		require.NoError(t, err)
		require.NoError(t, secrets.WaitForSync(t.Context()))
		time.Sleep(time.Hour)
		a.FailIf(http.StatusInternalServerError,
			func(r *http.Request) bool { return r.URL.Path == fleettest.PathOf("Secret") })
		a.Cut()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Error(t, secrets.Status().LastError)
		require.NotZero(t, book.Count("Informer interrupted", "list fleet/a secrets.v1", "an error on the server"),
			book.Lines)
		_, err = cc.Cluster(keyOfA).Status()
		require.NoError(t, err)
		require.ErrorIs(t, cc.Cluster(keyOfA).Reader().List(t.Context(), &corev1.SecretList{}, clustercache.CacheOnly),
			clustercache.ErrStale)
	})
}
