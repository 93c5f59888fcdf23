// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// witnesses follow all selections of one cluster: one that hears everything
// that happens before a restoration, and one that is cut off from the backup on
// until all is over.
type witnesses struct {
	remote

	near, away *estate
	proxy      *testenv.Proxy
}

// newWitnesses settles a cluster and has it followed.
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

// diverge changes everything, out of sight of one.
func (w *witnesses) diverge(t *testing.T) {
	t.Helper()
	w.proxy.Refuse()
	w.remote.diverge(t)
	w.near.equals(patience)
}

// agree requires that both are right within a time from the first contact on,
// and that deletes were delivered of what the restoration undid.
func (w *witnesses) agree(t *testing.T, within time.Duration) {
	t.Helper()
	w.near.s.ready(cluster)
	near := w.near.equals(within)
	w.near.undone(t)
	require.NoError(t, w.proxy.Heal())
	w.away.s.ready(cluster)
	t.Logf("all selections equal after %s; of one that was away, after %s", near, w.away.equals(within))
}
