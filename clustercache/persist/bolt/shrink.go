// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"
)

// smallerSuffix ends the path of the file that replaces one that is sparse.
const smallerSuffix = ".smaller"

// copyBytes is how much one transaction copies.
const copyBytes = 4 << 20

// shrink replaces the file at a path by a smaller one with the same content, and
// returns the database of that. A process that is killed meanwhile leaves the
// one or the other. If that fails, for example since the disk is full, it
// returns the database that it was given.
func (s *Store) shrink(path string, large *bbolt.DB) *bbolt.DB {
	f, err := beginSmaller(path + smallerSuffix)
	if err != nil {
		return large
	}
	small, err := s.use(f)
	if err == nil {
		err = guarded(func() error { return bbolt.Compact(small, large, copyBytes) })
		if err = errors.Join(err, f.Sync()); err == nil {
			err = os.Rename(f.path, path)
		}
		if err != nil {
			err = errors.Join(err, guarded(small.Close))
		}
	}
	if err != nil {
		_ = os.Remove(f.path)
		return large
	}
	syncDirectory(path)
	_ = guarded(large.Close) // its file has no name any more

	return small
}

// beginSmaller makes an empty database, which is locked. It replaces one that a
// process has left that was killed, and nothing else.
func beginSmaller(path string) (*file, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && ours(path, info):
		err = os.Remove(path)
	case err == nil:
		err = fs.ErrExist
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	f := &file{opened, path}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = f.begin()
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// syncDirectory makes the name of a file durable. Without that, the larger one
// may be there after a crash of the machine, which has the same content.
func syncDirectory(path string) {
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		_ = errors.Join(d.Sync(), d.Close())
	}
}
