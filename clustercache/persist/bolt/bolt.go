// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

// Package bolt is a persist.Store in one file, on go.etcd.io/bbolt. It needs a
// file system with flock, on a local disk: a volume of its own, or an emptyDir,
// which outlives a container but not its Pod.
//
// bbolt maps the file into memory, and trusts its structure. [Open] therefore
// reads the whole file first, and begins anew with an empty one if a page is
// damaged; records have checksums of their own (see clustercache/persist).
package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// DefaultMaxFileBytes is the default of Options.MaxFileBytes.
const DefaultMaxFileBytes = 2 * persist.DefaultMaxBytes

// fill is how full pages are made: most records are written in order.
const fill = 0.9

// ErrBroken indicates that the file cannot be used any more until it is opened
// again: it was damaged while it was open.
var ErrBroken = errors.New("file is damaged")

var errNoPath = errors.New("the path of the file is required")

// Error is an error of a file.
type Error struct {
	// Path is the path of the file.
	Path string
	// Op is what was attempted: "open", "read" or "write".
	Op string
	// Err is the cause. It is persist.ErrLocked if another process uses the
	// file.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Options configure a Store.
type Options struct {
	// MaxFileBytes is how large the file may become; it never shrinks. A write
	// beyond it fails, and what was written before stays. Defaults to 2 GiB,
	// which is twice the default of persist.Options.MaxBytes; negative means no
	// limit.
	MaxFileBytes int
	// OnDamage is called by Open, before it returns, if the file was damaged or
	// of another format, and has been emptied. Optional.
	OnDamage func(why error)
}

// Store is a persist.Store in a file.
type Store struct {
	path string
	db   *bbolt.DB
}

var _ persist.Store = (*Store)(nil)

// Open opens the file, which belongs to one Store at a time, and creates it and
// its directory if necessary, readable by the current user only. It does not
// wait for another process: the error is then an [*Error] with
// persist.ErrLocked. It reads the whole file, which blocks for as long as that
// takes.
func Open(path string, o Options) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, &Error{
			Path: path,
			Op:   "open",
			Err:  err,
		}
	}
	if path == "" {
		return fail(errNoPath)
	}
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = DefaultMaxFileBytes
	}
	file, err := openLocked(path)
	if err != nil {
		return fail(err)
	}
	damage, err := repair(file)
	if err != nil {
		return fail(errors.Join(err, file.Close()))
	}
	if damage != nil && o.OnDamage != nil {
		o.OnDamage(damage)
	}

	s := &Store{path: path}
	err = guarded(func() (err error) {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			// A list of free pages that was damaged would have live pages
			// overwritten; it is made from the pages instead.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
			MaxSize:        max(o.MaxFileBytes, 0),
			OpenFile:       func(string, int, os.FileMode) (*os.File, error) { return file, nil },
		})
		return err
	})
	if err != nil {
		return fail(err) // bbolt has closed the file
	}

	return s, nil
}

// openLocked opens a regular file, and locks it.
func openLocked(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600) // does not wait for a pipe's reader
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func lock(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return persist.ErrLocked
		}
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return file.Chmod(0o600)
	}
	return nil
}

// repair empties a file that bbolt must not see, and returns why it did.
func repair(file *os.File) (damage, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	if damage, err = check(file, info.Size()); damage == nil || err != nil {
		return nil, err
	}
	err = errors.Join(file.Truncate(0), file.Sync())
	if errors.Is(damage, errUnused) {
		return nil, err // its process ended before the first write
	}
	return damage, err
}

// Close closes the file. Nothing may be in progress.
func (s *Store) Close() error { return s.do("close", s.db.Close) }

// Buckets implements persist.Store.
func (s *Store) Buckets() (names []string, err error) {
	err = s.do("read", func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			names = nil
			return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
				names = append(names, string(name))
				return nil
			})
		})
	})
	return names, err
}

// Read implements persist.Store.
func (s *Store) Read(bucket string, f func(key, value []byte) error) error {
	var stopped error
	err := s.do("read", func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			if b == nil {
				return nil
			}
			c := b.Cursor()
			for key, value := c.First(); key != nil && stopped == nil; key, value = c.Next() {
				stopped = f(key, value)
			}
			return nil
		})
	})
	if stopped != nil {
		return stopped
	}
	return err
}

// Apply implements persist.Store.
func (s *Store) Apply(changes []persist.Change) error {
	return s.do("write", func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			for _, c := range changes {
				if err := apply(tx, c); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func apply(tx *bbolt.Tx, c persist.Change) error {
	name := []byte(c.Bucket)
	b := tx.Bucket(name)
	switch {
	case b == nil && c.Value == nil:
		return nil
	case c.Key == nil:
		return tx.DeleteBucket(name)
	case c.Value == nil:
		return b.Delete(c.Key)
	case b == nil:
		var err error
		if b, err = tx.CreateBucket(name); err != nil {
			return err
		}
	}

	b.FillPercent = fill

	return b.Put(c.Key, c.Value)
}

// do calls f, and adds what failed to its error.
func (s *Store) do(op string, f func() error) error {
	if err := guarded(f); err != nil {
		return &Error{
			Path: s.path,
			Op:   op,
			Err:  err,
		}
	}
	return nil
}

// guarded calls f, and returns its panic as an error: bbolt panics if a page is
// not what it should be, and an access to a mapped file that was truncated, or
// that its disk cannot read, is a fault.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", ErrBroken, v)
		}
	}()
	return f()
}
