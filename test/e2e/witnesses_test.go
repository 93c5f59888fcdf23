// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// witnesses follow all selections of one cluster. One receives everything that
// happens before a restoration, and the other is cut off from the backup until
// the restoration is complete.
type witnesses struct {
	remote

	near, away *estate
	proxy      *testenv.Proxy
}

// newWitnesses settles a cluster and starts following it.
func newWitnesses(t *testing.T, c *testenv.Cluster) *witnesses {
	t.Helper()
	r := newRemote(t, c.Config(), c.Name())
	r.settle(t)
	w := &witnesses{remote: r, proxy: c.Proxy(t)}
	w.near = follow(t, starting(t, one(c.Config()), nil), cluster, r)
	w.away = follow(t, starting(t, one(w.proxy.Config()), nil), cluster, r)
	w.near.equals(patience)
	w.away.equals(patience)
	return w
}

// diverge changes everything, unseen by one of the witnesses.
func (w *witnesses) diverge(t *testing.T) {
	t.Helper()
	w.proxy.Refuse()
	w.remote.diverge(t)
	w.near.equals(patience)
}

// agree requires that both are correct within the given time after the first
// contact, and that deletes were delivered for the objects that the restoration
// removed.
func (w *witnesses) agree(t *testing.T, within time.Duration) {
	t.Helper()
	w.near.s.ready(cluster)
	near := w.near.equals(within)
	w.near.undone(t)
	require.NoError(t, w.proxy.Heal())
	w.away.s.ready(cluster)
	t.Logf("all selections equal after %s; of one that was away, after %s", near, w.away.equals(within))
}
