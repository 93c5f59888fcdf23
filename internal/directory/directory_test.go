// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package directory_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/directory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEachSubscriberGetsEveryChange: two cluster caches may share a directory.
func TestEachSubscriberGetsEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := directory.New()
		config := func() *rest.Config { return &rest.Config{Host: "https://east.test"} }
		east, west := client.ObjectKey{Name: "east"}, client.ObjectKey{Name: "west"}
		d.Set(east, config)

		ctx, cancel := context.WithCancel(t.Context())
		var got [2][]client.ObjectKey
		for i := range got {
			go func() { _ = d.Notify(ctx, func(key client.ObjectKey) { got[i] = append(got[i], key) }) }()
		}
		synctest.Wait()
		d.Set(west, config)
		synctest.Wait()
		d.Remove(east)
		synctest.Wait()
		cancel()
		synctest.Wait()
		for i := range got {
			require.Equal(t, []client.ObjectKey{east, west, east}, got[i])
		}
	})
}
