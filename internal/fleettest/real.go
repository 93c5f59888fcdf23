// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// Patience is how long a test waits for an expected event.
const Patience = 90 * time.Second

// PemOf returns the certificate of a server, which is its own authority.
func PemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// DiscardLog is for servers whose error logs are expected.
var DiscardLog = log.New(io.Discard, "", 0)

// Agent is the user agent of requests to real servers.
const Agent = "fleetcache-under-test"

// Quick returns options that detect a dead cluster within ten seconds.
func Quick(r resolver.Resolver) clustercache.Options {
	return clustercache.Options{
		Resolver:      r,
		UserAgent:     Agent,
		ProbeInterval: 2 * time.Second,
		ProbeTimeout:  2 * time.Second,
		RetryInterval: 2 * time.Second,
		MaxBackoff:    2 * time.Second,
	}
}

// Create creates ConfigMaps in a real cluster.
func Create(t *testing.T, c *testenv.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"in": c.Name()},
		}))
	}
}

// ListOf returns an empty list of a kind.
func ListOf(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	return l
}

// ReadConfigMaps are the rules of least-privileged credentials.
var ReadConfigMaps = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}

// IsVersionQuestion reports whether a request is neither a list nor a watch: it
// asks how far the server's history has advanced, before an informer resumes,
// whether lists are streamed, or whether the user may watch.
func IsVersionQuestion(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	if err != nil {
		return false
	}
	right := r.Verb == "watch" && !u.Query().Has("allowWatchBookmarks")
	return right || r.Unstreamed || u.Query().Get("fieldSelector") != "" || u.Query().Get("limit") == "1"
}

// IsStreamedList reports whether a request is a list in the form of a watch.
func IsStreamedList(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	return err == nil && u.Query().Get("sendInitialEvents") == "true" && !IsVersionQuestion(r)
}

// ThreeKinds are the kinds that several informers of a cluster watch at once.
var ThreeKinds = []schema.GroupVersionKind{
	ConfigMap, {Version: "v1", Kind: "Secret"}, {Group: "example.com", Version: "v1", Kind: "Widget"},
}
