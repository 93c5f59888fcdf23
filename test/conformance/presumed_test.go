// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealServersServeWhatIsPresumed compares what is presumed of a server
// whose discovery does not answer with what servers say: no mapping differs,
// and no stable kind that can be watched is missing.
func TestRealServersServeWhatIsPresumed(t *testing.T) {
	t.Parallel()
	config := testenv.Start(t, 1)[0].Config()
	admin, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(admin.CloseIdleConnections)
	fake := &http.Client{Transport: fakeapi.New(fakeapi.Options{}).Transport()}
	silent := func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Request: r}, nil
	}
	for name, server := range map[string]*restmap.Mapper{
		"real": restmap.NewTable().NewMapper(admin.Do, config.Host, restmap.Options{}),
		"fake": restmap.NewTable().NewMapper(fake.Do, "http://fake.test", restmap.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			busy := restmap.NewTable().NewMapper(silent, "http://busy.test", restmap.Options{})
			kinds := []schema.GroupVersionKind{
				{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
				{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
			}
			for gvk := range scheme.Scheme.AllKnownTypes() {
				kinds = append(kinds, gvk)
			}
			presumed := 0
			for _, gvk := range kinds {
				said, sayErr := server.ResourceFor(t.Context(), gvk)
				found, err := busy.ResourceFor(t.Context(), gvk)
				if err == nil {
					require.NoError(t, sayErr, gvk)
					require.True(t, found.Presumed)
					presumed++
					found.Presumed = false
					require.Equal(t, said, found)
					continue
				}
				stable := !strings.ContainsAny(gvk.Version[1:], "ab")
				require.False(t, sayErr == nil && stable && said.Can(restmap.Get|restmap.List|restmap.Watch), gvk)
			}
			require.Greater(t, presumed, 50)
		})
	}
}
