// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt_test

import (
	"context"
	"log/slog"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// An operator keeps its caches on a volume. Without the file it works as well,
// and lists everything when it starts.
func Example() {
	run := func(ctx context.Context, r resolver.Resolver) error {
		o := clustercache.Options{Resolver: r, Discover: true}
		store, err := bolt.Open("/var/cache/operator/fleetcache.db", bolt.Options{Later: true})
		if err != nil {
			slog.Error("Caches are not kept", "error", err)
		} else {
			defer func() { _ = store.Close() }()
			o.Persist = persist.Options{Store: store}
		}
		cc, err := clustercache.New(o)
		if err != nil {
			return err
		}
		return cc.Start(ctx) // the last round is written when ctx ends
	}
	_ = run
}
