// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardMistypedPathIsSeen: the status of the cluster that represents the
// path shows the error, the log does too, and the program is not ready.
func TestHazardMistypedPathIsSeen(t *testing.T) {
	path, book := filepath.Join(t.TempDir(), "mistyped"), &fleettest.Logbook{}
	r, err := resolver.Files(resolver.FileOptions{}, path)
	require.NoError(t, err)
	cc := fleettest.Start(t, clustercache.Options{Resolver: r, Discover: true, Logger: book.Logger(),
		RetryInterval: time.Second})
	require.Eventually(t, func() bool {
		s, err := cc.Cluster(client.ObjectKey{Name: path}).Status()
		return err == nil && errors.Is(s.LastError, fs.ErrNotExist) && s.Reason == status.ReasonNoAccess
	}, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return book.Count("Clusters cannot be listed") > 0 }, 30*time.Second,
		10*time.Millisecond)
	require.Positive(t, book.Count(path))
	require.Error(t, cc.ReadyzCheck()(nil))
}
