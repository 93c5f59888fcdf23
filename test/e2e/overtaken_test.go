// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// overtakenRestore: the restored history has advanced further than the informer
// by the time the informer resumes. No version reveals that, but the audit
// does.
func overtakenRestore(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	r := newRemote(t, c.Config(), c.Name())
	r.settle(t)
	proxy := c.Proxy(t)
	s := watching(t, one(proxy.Config()), nil)
	all := follow(t, starting(t, one(proxy.Config()), nil), cluster, r)
	s.equals(cluster, o, patience)
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	diverge(t, o)
	r.diverge(t)
	s.equals(cluster, o, patience)
	all.equals(patience)

	proxy.Refuse()
	reached := version(t, o)
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	for version(t, o) < reached+10 {
		grow(t, o, 20)
	}
	require.NoError(t, proxy.Heal())
	s.ready(cluster)
	t.Logf("equal %s after the first contact", s.equals(cluster, o, found))
	require.Positive(t, s.deletes(cluster)["late"])
	all.s.ready(cluster)
	t.Logf("all selections equal %s later", all.equals(found))
	all.undone(t)
}

// version returns the current version of the history.
func version(t *testing.T, o oracle) int {
	t.Helper()
	list, err := o.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	v, err := strconv.Atoi(list.ResourceVersion)
	require.NoError(t, err)
	return v
}
