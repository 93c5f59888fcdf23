// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardCancelledDialIsNotStillRunning: a dial that ends a moment after it
// was cancelled has ended in time, even if Start waits for nothing else.
func TestHazardCancelledDialIsNotStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		config := api.Config()
		config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond)
			return nil, ctx.Err()
		}
		d.Set(fleettest.Key("a"), config)
		cc := fleettest.Start(t, fleettest.Silent(d)) // its cleanup requires that Start returns nil
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Second)
	})
}
