// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestHazardServerServesButDoesNotSayWhat: while a server is busy, forbids
// discovery or fails at it, the kinds of Kubernetes itself are presumed to be
// served as everywhere. Nothing of that is remembered: what discovery says then
// is all that counts.
func TestHazardServerServesButDoesNotSayWhat(t *testing.T) {
	secret, job := gvkOf("", "v1", "Secret"), gvkOf("batch", "v1", "Job")
	for name, c := range map[string]struct {
		status   int
		presumes bool
	}{
		"busy":         {http.StatusTooManyRequests, true},
		"forbidden":    {http.StatusForbidden, true},
		"unavailable":  {http.StatusServiceUnavailable, true},
		"unauthorized": {http.StatusUnauthorized, false},
		"not there":    {http.StatusNotFound, false},
		"no document":  {http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCluster(t)
				s.status[corePath], s.status[apisPath] = c.status, c.status
				m := s.mapper(NewTable())
				found, err := m.ResourceFor(t.Context(), job)
				if c.presumes {
					require.NoError(t, err)
					require.Equal(t, Mapping{
						Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
						Kind:     "Job", Singular: "job", Namespaced: true, Presumed: true,
					}, found)
				} else {
					require.Error(t, err)
				}
				for _, never := range []schema.GroupVersionKind{
					widget, gvkOf("batch", "v1beta1", "CronJob"), gvkOf("", "v1", "PodList"),
					gvkOf("", "v1", "Binding"),
					gvkOf("gateway.networking.k8s.io", "v1", "Gateway"),
				} {
					_, err := m.ResourceFor(t.Context(), never)
					require.Error(t, err, never)
					core := c.status == http.StatusNotFound && never.Group == "" // a server may be without it
					require.Equal(t, core, meta.IsNoMatchError(err), never)
				}
				_, known := m.Cached(job)
				require.False(t, known, "it is not remembered")

				clear(s.status)
				time.Sleep(errorTTL)
				_, err = m.ResourceFor(t.Context(), job)
				requireNoMatch(t, err)
				_, err = m.ResourceFor(t.Context(), secret)
				requireNoMatch(t, err)
				found, err = m.ResourceFor(t.Context(), pod)
				require.NoError(t, err)
				require.False(t, found.Presumed)

				s.status[corePath], s.status[apisPath] = c.status, c.status
				m.Invalidate()
				_, err = m.ResourceFor(t.Context(), secret)
				require.Error(t, err, "the server has said that it does not serve it")
				m.Reset()
				_, err = m.ResourceFor(t.Context(), secret)
				require.Equal(t, c.presumes, err == nil, "another cluster may serve it")
			})
		})
	}
}

// TestHazardHalfADiscoveryIsPresumed: what one part of discovery says is not
// presumed, and what the other one would say is.
func TestHazardHalfADiscoveryIsPresumed(t *testing.T) {
	s := newCluster(t)
	s.status[apisPath] = http.StatusTooManyRequests
	m := s.mapper(NewTable())
	found, err := m.ResourceFor(t.Context(), pod)
	require.NoError(t, err)
	require.False(t, found.Presumed)
	_, err = m.ResourceFor(t.Context(), gvkOf("", "v1", "Secret"))
	requireNoMatch(t, err)
	found, err = m.ResourceFor(t.Context(), gvkOf("autoscaling", "", "HorizontalPodAutoscaler"))
	require.NoError(t, err)
	require.True(t, found.Presumed)
	require.Equal(t, "v2", found.Resource.Version)
}

// TestPresumedKindsAreFoundInEveryWay asks as clients of controller-runtime and
// client-go do.
func TestPresumedKindsAreFoundInEveryWay(t *testing.T) {
	s := newCluster(t)
	s.status[corePath], s.status[apisPath] = http.StatusForbidden, http.StatusForbidden
	m := s.mapper(NewTable()).RESTMapper()
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	role := roles.GroupVersion().WithKind("ClusterRole")

	mapping, err := m.RESTMapping(role.GroupKind(), "v1")
	require.NoError(t, err)
	require.Equal(t, roles, mapping.Resource)
	require.Equal(t, meta.RESTScopeRoot, mapping.Scope)
	mapping, err = m.RESTMapping(role.GroupKind())
	require.NoError(t, err)
	require.Equal(t, role, mapping.GroupVersionKind)
	kind, err := m.KindFor(roles.GroupResource().WithVersion(""))
	require.NoError(t, err)
	require.Equal(t, role, kind)
	resource, err := m.ResourceFor(schema.GroupVersionResource{Resource: "endpoints"})
	require.NoError(t, err)
	require.Equal(t, schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}, resource)
	singular, err := m.ResourceSingularizer("networkpolicies")
	require.NoError(t, err)
	require.Equal(t, "networkpolicy", singular)
	_, err = m.RESTMapping(widget.GroupKind(), "v1")
	require.Error(t, err)
	require.False(t, meta.IsNoMatchError(err))
}
