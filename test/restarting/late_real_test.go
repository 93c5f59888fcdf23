// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// lateWatches is a proxy in front of an API server. It accepts watches at once,
// and withholds what they carry for a while; streamed lists pass.
type lateWatches struct {
	*httptest.Server
	delay atomic.Int64
}

func newLateWatches(t *testing.T, c *testenv.Cluster) *lateWatches {
	t.Helper()
	target, err := url.Parse("https://" + c.Addr())
	require.NoError(t, err)
	transport, err := rest.TransportFor(c.Config())
	require.NoError(t, err)
	p := &lateWatches{}
	p.Server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.withhold,
		ErrorLog:       fleettest.DiscardLog,
	})
	p.Config.ErrorLog = fleettest.DiscardLog
	p.StartTLS()
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})

	return p
}

func (p *lateWatches) withhold(r *http.Response) error {
	if q := r.Request.URL.Query(); q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
		r.Body = &lateBody{ReadCloser: r.Body, ctx: r.Request.Context(), delay: time.Duration(p.delay.Load())}
	}
	return nil
}

// lateBody is a body that shows nothing until a delay has passed.
type lateBody struct {
	io.ReadCloser
	ctx   context.Context // of the request
	delay time.Duration
	once  sync.Once
	ended error // the request has, before the delay had passed
}

func (b *lateBody) Read(data []byte) (int, error) {
	b.once.Do(func() {
		select {
		case <-time.After(b.delay):
		case <-b.ctx.Done(): // what is read now must not reach the client, which may still listen
			b.ended = context.Cause(b.ctx)
		}
	})
	if b.ended != nil {
		return 0, b.ended
	}
	return b.ReadCloser.Read(data)
}

// config returns a config for connecting through the proxy.
func (p *lateWatches) config() *rest.Config {
	return &rest.Config{
		Host:            p.URL,
		BearerToken:     "proxy",
		TLSClientConfig: rest.TLSClientConfig{CAData: fleettest.PemOf(p.Server)},
	}
}

// TestRealRestartBehindALateWatch: however late a real server's watches are,
// what was deleted, changed or created while no process ran is right in the
// first state that is shown.
func TestRealRestartBehindALateWatch(t *testing.T) {
	t.Parallel()
	c, path := testenv.Start(t, 1)[0], filepath.Join(t.TempDir(), "cache.db")
	proxy, d := newLateWatches(t, c), fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.config())
	restart := func() *operator {
		t.Helper()
		o := begin(t, d, path, func(o *clustercache.Options) {
			quick := fleettest.Quick(d)
			quick.Logger, quick.MetricsRegisterer, quick.Persist = o.Logger, o.MetricsRegisterer, o.Persist
			*o = quick
		})
		require.NoError(t, o.Cluster(fleettest.Key("a")).Engage())
		o.watch(fleettest.Key("a"), &corev1.ConfigMap{})
		require.Equal(t, namesIn(t, c.Client()), o.names(fleettest.Key("a")))
		return o
	}
	for _, name := range []string{"changed", "deleted"} {
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap(name, "red")))
	}
	restart().end()

	for i, delay := range []time.Duration{
		0, 200 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Hour,
	} {
		color := []string{"blue", "green"}[i%2]
		require.NoError(t, c.Client().Update(t.Context(), fleettest.ColoredConfigMap("changed", color)))
		require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("deleted", "")))
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap(delay.String(), color)))
		proxy.delay.Store(int64(delay))
		o := restart()
		t.Logf("watches late by %v: %v restores", delay, o.metric("fleetcache_restores_total"))
		if delay <= time.Second {
			require.InDelta(t, 1, o.metric("fleetcache_restores_total"), 0)
		}
		if delay == time.Hour {
			require.Zero(t, o.metric("fleetcache_restores_total"))
		}
		o.end()
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("deleted", "red")))
		proxy.delay.Store(0)
		restart().end() // keeps the object that the next one has to miss
	}
}
