// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardCancelledDialIsNotStillRunning: a dial that ends a moment after it
// was cancelled has ended in time, even if Start waits for nothing else.
func TestHazardCancelledDialIsNotStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		config := api.config()
		config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond)
			return nil, ctx.Err()
		}
		d.set(key("a"), config)
		cc := start(t, silent(d)) // its cleanup requires that Start returns nil
		require.NoError(t, cc.Engage(key("a")))
		time.Sleep(time.Second)
	})
}
