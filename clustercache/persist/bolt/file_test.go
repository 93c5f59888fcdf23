// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
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

// TestFileOfAnotherFormatIsSetAside: it is ours, and not for this version.
func TestFileOfAnotherFormatIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	file := initial(os.Getpagesize())
	for at := 0; at <= os.Getpagesize(); at += os.Getpagesize() {
		m := meta(file[at+headerSize : at+headerSize+metaSize])
		binary.NativeEndian.PutUint32(m[12:], format+1)
		binary.NativeEndian.PutUint64(m[56:], m.sum())
	}
	require.NoError(t, os.WriteFile(path, file, 0o600))
	var why error
	s, err := Open(path, Options{OnDamage: func(err error) { why = err }})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorContains(t, why, "format 2")
	left, err := os.ReadFile(path + ".damaged")
	require.NoError(t, err)
	require.Equal(t, file, left)
}
