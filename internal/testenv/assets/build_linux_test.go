// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABuildWhoseProcessIsKilledEnds(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "wait")
	builder := child(t)
	w.await(t, "begun")
	require.NoError(t, builder.Process.Signal(syscall.SIGKILL))
	require.Error(t, builder.Wait())
	w.await(t, "interrupted")
}
