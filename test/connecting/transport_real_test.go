// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// version matches what a server in which nothing happens still changes.
var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// TestRealServersAnswerBothClientsTheSame: a real API server is sent the same
// requests through the transport's own HTTP/2 client and through net/http.
func TestRealServersAnswerBothClientsTheSame(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, 1)[0]
	fleettest.Create(t, env, "one", "two")
	var clients [2]*transport.Transport
	for i := range clients {
		clients[i] = transport.New(transport.Options{QPS: -1, NetHTTP: i == 1, UserAgent: fleettest.Agent})
		t.Cleanup(clients[i].Close)
		require.NoError(t, clients[i].Swap(env.Config(), "first"))
	}
	require.True(t, clients[0].Multiplexed())
	require.False(t, clients[1].Multiplexed())

	headers := []http.Header{
		{},
		{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}},
		{"Accept": {"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}},
		{"Accept": {"application/vnd.kubernetes.protobuf"}},
		{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}},
		{"Accept": {"a/b"}},
		{"Impersonate-User": {"nobody"}},
		{"Authorization": {"Bearer wrong"}},
	}
	paths := []string{
		"/readyz", "/version", "/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v2", "/nothing",
		"/api/v1/namespaces/kube-system", "/api/v1/namespaces/default/configmaps/one",
		"/api/v1/namespaces/default/configmaps/missing", "/api/v1/namespaces/default/configmaps?limit=1",
		"/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Done",
		"/api/v1/namespaces/default/configmaps?labelSelector=!!", "/api/v1/configmaps?resourceVersion=1&continue=wrong",
		"/api/v1/configmaps?watch=true&timeoutSeconds=1&resourceVersion=wrong",
	}
	for _, path := range paths {
		for _, header := range headers {
			var answers [2]*http.Response
			var bodies [2]string
			for i, c := range clients {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL()+path, nil)
				require.NoError(t, err)
				req.Header = header.Clone()
				resp, err := c.Client().Do(req)
				require.NoError(t, err)
				body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				for _, name := range []string{"Date", "Audit-Id", "Content-Length"} {
					resp.Header.Del(name)
				}
				answers[i], bodies[i] = resp, version.ReplaceAllString(string(body), "")
			}
			where := path + " with " + header.Get("Accept")
			require.Equal(t, answers[1].StatusCode, answers[0].StatusCode, where)
			require.Equal(t, answers[1].Header, answers[0].Header, where)
			require.Equal(t, answers[1].Uncompressed, answers[0].Uncompressed, where)
			if header.Get("Accept") != "application/vnd.kubernetes.protobuf" { // versions have no field names there
				require.Equal(t, bodies[1], bodies[0], where)
			}
		}
	}
}
