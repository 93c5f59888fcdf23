// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// maxAside is how many damaged files are kept beside the one in use.
const maxAside = 3

// minSpare is how much more of a file than is in use may be free without the file
// being made smaller.
const minSpare = 8 << 20

// maxMoves is how often another process may set the file aside while it is
// being opened.
const maxMoves = 10

// file is a regular file that this process has locked.
type file struct {
	*os.File

	path string // its own, if it was opened through a link
}

// lockFile opens a file, which it creates if necessary, and locks it. Nothing
// else changes before the caller knows whose it is.
func lockFile(path string) (*file, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for range maxMoves {
		// It does not wait for the reader of a pipe.
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, explained(path, err)
		}
		own, err := lock(f, path)
		if err == nil && own != "" {
			return &file{f, own}, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return nil, persist.ErrLocked
}

// lock locks a file that was opened by a path, and returns the path of its own.
// That is empty if another process has set the file aside since.
func lock(f *os.File, path string) (own string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return "", persist.ErrLocked
		}
		return "", err
	}
	own, err = filepath.EvalSymlinks(path)
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Stat(own); err == nil && os.SameFile(info, there) {
			return own, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}

	return "", err
}

// explained adds whose the file is to an error that says only that this process
// may not open it.
func explained(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	info, statErr := os.Stat(path)
	if statErr != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return err
	}
	return fmt.Errorf("%w: it has mode %#o and belongs to user %d, and this process is user %d",
		err, info.Mode().Perm(), owner.Uid, os.Geteuid())
}

// prepare returns why the file must be set aside, or nil if bbolt may use it,
// and whether more of it is free than in use. A file that is not ours is an
// error, and is left as it is.
func (f *file) prepare() (sparse bool, damage, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, nil, err
	}
	if info.Size() > 0 {
		what, err := foreign(f)
		if err != nil {
			return false, nil, err
		}
		if what != "" {
			return false, nil, fmt.Errorf("%w: %s, and is left as it is", ErrForeign, what)
		}
	}
	if err := narrow(info.Mode().Perm(), f.Chmod); err != nil {
		return false, nil, err
	}
	if info.Size() == 0 {
		return false, nil, f.begin()
	}
	used, damage, err := check(f, info.Size())

	return info.Size() > 2*used+minSpare, damage, err
}

// narrow takes the rights to a file from all but its owner. A file that belongs
// to another user is as its volume has it, if it is closed to all but a group:
// fsGroup of a Pod makes it so for each user that the Pod runs as.
func narrow(mode fs.FileMode, chmod func(fs.FileMode) error) error {
	const group, others = 0o070, 0o007
	if mode&(group|others) == 0 {
		return nil
	}
	if err := chmod(0o600); err != nil && mode&others != 0 {
		return fmt.Errorf("mode %#o opens it to all, and cannot be changed: %w", mode, err)
	}
	return nil
}

// begin makes an empty file a database.
func (f *file) begin() error {
	_, err := f.WriteAt(initial(os.Getpagesize()), 0)
	if err = errors.Join(err, f.Sync()); err != nil {
		return errors.Join(err, f.Truncate(0))
	}
	return nil
}

// setAside renames the file, and returns its new path. If there are enough
// such files, it replaces the oldest of them; a file that is not ours is never
// replaced.
func (f *file) setAside() (string, error) {
	var oldest string
	var since time.Time
	for i := range maxAside {
		path := f.path + ".damaged"
		if i > 0 {
			path += "." + strconv.Itoa(i)
		}
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, os.Rename(f.path, path)
		}
		if err != nil {
			return "", err
		}
		if ours(path, info) && (oldest == "" || info.ModTime().Before(since)) {
			oldest, since = path, info.ModTime()
		}
	}
	if oldest == "" {
		return "", errors.New("other files have the names under which it would be set aside")
	}

	return oldest, os.Rename(f.path, oldest)
}

// ours reports whether a file that is not in use has the marker.
func ours(path string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	what, err := foreign(f)

	return what == "" && err == nil
}
