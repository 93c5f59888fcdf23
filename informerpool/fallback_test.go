// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TestFindingsAgePerGroup: an upgraded server is asked again, and a group does
// not speak for another one.
func TestFindingsAgePerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := records{of: map[types.NamespacedName]*clusterStats{}}
		c := r.open(types.NamespacedName{})
		of := func(group string) *server {
			key := Key{Resource: schema.GroupVersionResource{Group: group}}
			return &server{informer: &informer{pool: &Pool{}, cluster: c, key: key}}
		}
		apps, batch := of("apps"), of("batch")
		require.False(t, apps.paged())
		apps.pages()
		time.Sleep(fallbackAge - time.Second)
		batch.pages()
		require.True(t, apps.paged())
		time.Sleep(time.Second)
		require.False(t, apps.paged())
		require.True(t, batch.paged())
		require.False(t, of("").paged(), "nothing is known of the core group")

		c.streamAgain()
		require.False(t, batch.paged())
	})
}
