// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestKindsAreKeptAsChosen, and what an earlier process has kept of another is
// deleted.
func TestKindsAreKeptAsChosen(t *testing.T) {
	widget := schema.GroupKind{Group: pooltest.Widgets.Group, Kind: "Widget"}
	other := schema.GroupKind{Kind: "Widget"}
	for name, c := range map[string]struct {
		only, except []schema.GroupKind
		kept         bool
	}{
		"all":                    {kept: true},
		"alone":                  {only: []schema.GroupKind{other, widget}, kept: true},
		"another alone":          {only: []schema.GroupKind{other}},
		"left out":               {except: []schema.GroupKind{widget}},
		"another left out":       {except: []schema.GroupKind{other}, kept: true},
		"left out of what is so": {only: []schema.GroupKind{other, widget}, except: []schema.GroupKind{widget}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, disk := filled(5), newMemory()
				key := pooltest.Everything
				key.Kind = widget.Kind
				run := func(change func(*informerpool.Options, *persist.Options)) {
					p := start(t, s, disk, change)
					pooltest.AcquireSynced(t, p.pool, key)
					p.stop()
				}
				run(nil)
				require.Equal(t, 6, disk.count())
				for range 2 {
					run(func(_ *informerpool.Options, o *persist.Options) { o.Only, o.Except = c.only, c.except })
					require.Equal(t, c.kept, disk.count() == 6)
					require.Equal(t, !c.kept, disk.count() == 0)
				}
			})
		})
	}
}
