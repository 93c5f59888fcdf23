// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFileOfAnotherUserIsUsedUnlessItIsOpenToAll: fsGroup of a Pod opens the
// files of a volume to a group, and only their owner can change that.
func TestFileOfAnotherUserIsUsedUnlessItIsOpenToAll(t *testing.T) {
	for mode, want := range map[fs.FileMode]struct{ own, others error }{
		0o600: {},
		0o400: {},
		0o660: {},
		0o640: {},
		0o664: {others: fs.ErrPermission},
		0o666: {others: fs.ErrPermission},
		0o777: {others: fs.ErrPermission},
	} {
		now := mode
		require.ErrorIs(t, narrow(mode, func(m fs.FileMode) error { now = m; return nil }), want.own)
		require.Zero(t, now&0o077, "it is private")
		err := narrow(mode, func(fs.FileMode) error { return syscall.EPERM })
		require.ErrorIs(t, err, want.others, "%o", mode)
		if want.others != nil {
			require.ErrorContains(t, err, "opens it to all")
		}
	}
}
