// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

// Package bolt is a persist.Store in one file, on go.etcd.io/bbolt. It needs a
// file system with flock, on a local disk: a volume of its own, or an emptyDir,
// which outlives a container but not its Pod.
//
// The file has a marker, and [Open] neither uses nor changes one that lacks it,
// be it another program's database or any other file.
//
// bbolt maps the file into memory, and trusts its structure. Open therefore
// reads the whole file first, and sets it aside and begins with a new one if a
// page is damaged; records have checksums of their own (see
// clustercache/persist).
//
// # Tests
//
// The leading test is TestDamagedFileNeitherCrashesNorLies.
// TestHazardForeignFileIsNeverChanged covers the files of other programs.
package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// DefaultMaxFileBytes is the default of Options.MaxFileBytes.
const DefaultMaxFileBytes = 2 * persist.DefaultMaxBytes

// lockPause is the time between two attempts to lock the file.
const lockPause = 100 * time.Millisecond

// growth is by how much more than is needed the file grows.
const growth = 1 << 20

// maxResident is about how much of the file reads leave in the resident memory
// of the process.
const maxResident = 4 << 20

// fill is how full pages are made: most records are written in order.
const fill = 0.9

// ErrBroken indicates that the file cannot be used any more until it is opened
// again: it was damaged while it was open.
var ErrBroken = errors.New("file is damaged")

// ErrForeign indicates a file that is not of this package, or of a revision of
// it that had no marker yet. Such a file is never changed: use another path, or
// delete it.
var ErrForeign = errors.New("not a file of fleetcache's caches")

var errNoPath = errors.New("the path of the file is required")

// Error is an error of a file.
type Error struct {
	// Path is the path of the file.
	Path string
	// Op is what was attempted: "open", "read", "write" or "close".
	Op string
	// Err is the cause. It is persist.ErrLocked if another process uses the
	// file, and wraps ErrForeign if the file is not ours.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DamageError describes a damaged file that was set aside.
type DamageError struct {
	// Path is the path of the file, which is a new one now.
	Path string
	// Aside is where the damaged one is.
	Aside string
	// Err is the damage.
	Err error
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged, and was set aside as %s: %v", e.Path, e.Aside, e.Err)
}

// Unwrap returns the damage.
func (e *DamageError) Unwrap() error { return e.Err }

// Options configure a Store.
type Options struct {
	// MaxFileBytes is how large the file may become. It shrinks when it is opened,
	// if less than half of it is in use. A write
	// beyond it fails, and what was written before stays. Defaults to 2 GiB,
	// which is twice the default of persist.Options.MaxBytes; negative means no
	// limit.
	MaxFileBytes int
	// LockTimeout is how long Open waits while another process uses the file.
	// Defaults to 0: it does not wait.
	LockTimeout time.Duration
	// Later has Open return a Store also if another process still uses the file
	// after LockTimeout, as in a rolling update, in which the old Pod ends once
	// the new one is ready. Until the other process has ended, each method of
	// the Store fails with persist.ErrLocked; the first one after that opens the
	// file. A ClusterCache tries every second, and begins to keep its caches
	// then.
	Later bool
	// OnDamage is called if the file was damaged, or of another format, and has
	// been set aside; why is a [*DamageError]. That is before Open returns,
	// unless the file is opened Later. Defaults to a warning by log/slog.
	OnDamage func(why error)
}

// Store is a persist.Store in a file.
type Store struct {
	path    string
	options Options
	db      atomic.Pointer[bbolt.DB]
	read    atomic.Int64 // bytes, since their pages were released

	opening sync.Mutex // only Close waits for it
	closed  bool       // protected by opening
}

var _ persist.Store = (*Store)(nil)

// Open opens the file, which belongs to one Store at a time, and creates it and
// its directory if necessary, readable by the current user only. It reads the
// whole file, which blocks for as long as that takes.
//
// If another process uses the file, the error is an [*Error] with
// persist.ErrLocked, after LockTimeout. If the file is not of this package, the
// error wraps [ErrForeign], and the file is as it was. If it is, but damaged,
// Open renames it to one that ends in .damaged, .damaged.1 or .damaged.2, and
// creates a new one; if all of these exist, the oldest is replaced.
func Open(path string, o Options) (*Store, error) {
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = DefaultMaxFileBytes
	}
	if o.OnDamage == nil {
		o.OnDamage = func(why error) { slog.Warn("Kept caches are lost", "error", why) }
	}
	s := &Store{
		path:    path,
		options: o,
	}
	err := s.wait()
	if err == nil || o.Later && errors.Is(err, persist.ErrLocked) {
		return s, nil
	}

	return nil, &Error{
		Path: path,
		Op:   "open",
		Err:  err,
	}
}

// wait opens the file, and waits for another process that uses it.
func (s *Store) wait() error {
	if s.path == "" {
		return errNoPath
	}
	for began := time.Now(); ; {
		_, err := s.database()
		left := s.options.LockTimeout - time.Since(began)
		if left <= 0 || !errors.Is(err, persist.ErrLocked) {
			return err
		}
		time.Sleep(min(lockPause, left))
	}
}

// database returns the database, and opens the file if that has not been
// possible yet.
func (s *Store) database() (*bbolt.DB, error) {
	if db := s.db.Load(); db != nil {
		return db, nil
	}
	db, damage, err := s.load()
	if damage != nil {
		s.options.OnDamage(damage)
	}
	return db, err
}

// load opens the file, and begins with a new one if it is damaged.
func (s *Store) load() (db *bbolt.DB, damage, err error) {
	if !s.opening.TryLock() {
		return nil, nil, persist.ErrLocked
	}
	defer s.opening.Unlock()

	if db = s.db.Load(); db != nil {
		return db, nil, nil
	}
	if s.closed {
		return nil, nil, fs.ErrClosed
	}
	db, damage, err = s.open()
	if damage != nil {
		var again error
		if db, again, err = s.open(); again != nil {
			err = again
		}
	}
	if err != nil {
		return nil, damage, err
	}
	s.db.Store(db)

	return db, damage, nil
}

// open opens the file. If it is damaged, open sets it aside, and returns no
// database.
func (s *Store) open() (db *bbolt.DB, damage, err error) {
	f, err := lockFile(s.path)
	if err != nil {
		return nil, nil, err
	}
	sparse, damage, err := f.prepare()
	if damage == nil && err == nil {
		if db, err = s.use(f); err == nil && sparse {
			db = s.shrink(f.path, db)
		}
		if !errors.Is(err, ErrBroken) {
			return db, nil, err
		}
		damage, err = err, nil
	}
	if damage == nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	aside, err := f.setAside()
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("it is damaged (%w), and cannot be set aside: %w", damage, err)
	}

	return nil, &DamageError{
		Path:  s.path,
		Aside: aside,
		Err:   damage,
	}, nil
}

// use has bbolt use a file. After an error that is not ErrBroken, bbolt has
// closed it.
func (s *Store) use(f *file) (db *bbolt.DB, err error) {
	err = guarded(func() (err error) {
		db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{
			// A list of free pages that was damaged would have live pages
			// overwritten; it is made from the pages instead.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
			MaxSize:        max(s.options.MaxFileBytes, 0),
			OpenFile:       func(string, int, os.FileMode) (*os.File, error) { return f.File, nil },
		})
		return err
	})
	if err == nil {
		db.AllocSize = growth
	}
	return db, err
}

// Close closes the file. Nothing may be in progress.
func (s *Store) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.closed = true
	db := s.db.Load()
	if db == nil {
		return nil
	}
	return s.typed("close", guarded(db.Close))
}

// Buckets implements persist.Store.
func (s *Store) Buckets() (names []string, err error) {
	err = s.do("read", func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
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
	err := s.do("read", func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			if b == nil {
				return nil
			}
			c, n := b.Cursor(), int64(0)
			for key, value := c.First(); key != nil && stopped == nil; key, value = c.Next() {
				n += int64(len(value))
				stopped = f(key, value)
			}
			if s.read.Add(n) > maxResident {
				s.read.Store(0)
				release(tx)
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
	return s.do("write", func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
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

// do calls f with the database, and adds what failed to its error.
func (s *Store) do(op string, f func(*bbolt.DB) error) error {
	db, err := s.database()
	if err == nil {
		err = guarded(func() error { return f(db) })
	}
	return s.typed(op, err)
}

// typed adds what failed to an error.
func (s *Store) typed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{
		Path: s.path,
		Op:   op,
		Err:  err,
	}
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
