// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRetryAfter feeds arbitrary headers. Clients must see a number of seconds
// within the limit.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "-1", "1000000000", "Fri, 31 Dec 1999 23:59:59 GMT", "soon", "+5", "1e9", "０"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		h := http.Header{"Retry-After": {value}}
		capRetryAfter(h)
		if value == "" {
			return
		}
		seconds, err := strconv.Atoi(h.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 0)
		require.LessOrEqual(t, seconds, 30)
	})
}

// FuzzPlaceholder feeds arbitrary cluster names. The host must be valid and
// must never resolve.
func FuzzPlaceholder(f *testing.F) {
	f.Add("fleet/one")
	f.Add("")
	f.Add("\xff/é@:443?#")
	f.Fuzz(func(t *testing.T, cluster string) {
		s := New(Options{Cluster: cluster})
		require.Equal(t, s.base.Host, s.base.Hostname())
		require.True(t, strings.HasSuffix(s.URL(), ".cluster.invalid"))
		require.LessOrEqual(t, len(s.base.Host), 253)
		_, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/api", nil)
		require.NoError(t, err)
	})
}
