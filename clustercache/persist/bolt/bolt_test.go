// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contents returns all records of a store.
func contents(t *testing.T, s *bolt.Store) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	names, err := s.Buckets()
	require.NoError(t, err)
	for _, name := range names {
		out[name] = map[string]string{}
		last := []byte(nil)
		require.NoError(t, s.Read(name, func(key, value []byte) error {
			require.Positive(t, bytes.Compare(key, last), "in order")
			last = bytes.Clone(key)
			out[name][string(key)] = string(value)
			return nil
		}))
	}
	return out
}

// model applies changes to a map.
func model(m map[string]map[string]string, changes []persist.Change) {
	for _, c := range changes {
		switch {
		case c.Key == nil:
			delete(m, c.Bucket)
		case c.Value == nil:
			delete(m[c.Bucket], string(c.Key))
		default:
			if m[c.Bucket] == nil {
				m[c.Bucket] = map[string]string{}
			}
			m[c.Bucket][string(c.Key)] = string(c.Value)
		}
	}
}

// random returns changes of a few buckets, some small and some of many pages.
func random(r *rand.Rand) (changes []persist.Change) {
	for range 1 + r.IntN(60) {
		bucket := fmt.Sprint("bucket ", r.IntN(6))
		key := make([]byte, 16)
		for i := range key {
			key[i] = byte(r.IntN(256))
		}
		key[0] = byte(r.IntN(8))
		copy(key[1:], make([]byte, 14))
		c := persist.Change{Bucket: bucket, Key: key}
		switch r.IntN(12) {
		case 0, 1, 2:
		case 3:
			if r.IntN(4) == 0 {
				c.Key = nil
			}
		default:
			c.Value = bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(3000))
			if c.Value == nil {
				c.Value = []byte{}
			}
			if r.IntN(30) == 0 {
				c.Value = bytes.Repeat([]byte("large"), 8000)
			}
		}
		changes = append(changes, c)
	}
	return changes
}

func open(t *testing.T, path string, o bolt.Options) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(path, o)
	require.NoError(t, err)
	return s
}

// TestWholeFileIsNeverTakenForDamaged: whatever is written, and however often
// the file is opened again, the check accepts it, and every record is there.
func TestWholeFileIsNeverTakenForDamaged(t *testing.T) {
	path, want := filepath.Join(t.TempDir(), "dir", "cache.db"), map[string]map[string]string{}
	r := rand.New(rand.NewPCG(1, 2))
	sound := bolt.Options{OnDamage: func(why error) { require.NoError(t, why) }}
	for range 25 {
		s := open(t, path, sound)
		require.Equal(t, want, contents(t, s))
		for range 8 {
			changes := random(r)
			require.NoError(t, s.Apply(changes))
			model(want, changes)
		}
		require.Equal(t, want, contents(t, s))
		require.NoError(t, s.Close())
	}
}

// written returns the bytes of a file with contents.
func written(t testing.TB) (file []byte, want map[string]map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.db")
	s, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	want = map[string]map[string]string{}
	r := rand.New(rand.NewPCG(3, 4))
	for range 6 {
		changes := random(r)
		require.NoError(t, s.Apply(changes))
		model(want, changes)
	}
	require.NoError(t, s.Close())
	file, err = os.ReadFile(path)
	require.NoError(t, err)

	return file, want
}

// requireUsable opens a damaged file, reads it as far as it can be read, and
// writes to it. Where the check cannot see the damage, as in a key that still
// is in order, bbolt may find it while it writes; what it makes of it then is
// for the checksums of the records.
func requireUsable(t *testing.T, path string) (damaged bool) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var aside string
	s, err := bolt.Open(path, bolt.Options{OnDamage: func(why error) {
		typed := (*bolt.DamageError)(nil)
		require.ErrorAs(t, why, &typed)
		damaged, aside = true, typed.Aside
	}})
	if damaged {
		path = aside
	}
	left, readErr := os.ReadFile(path)
	require.NoError(t, readErr)
	if len(content) > 0 {
		require.Equal(t, content, left, "no byte is lost")
	}
	if errors.Is(err, bolt.ErrForeign) { // no marker is left
		return false
	}
	require.NoError(t, err)
	before := contents(t, s)
	if damaged {
		require.Empty(t, before)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 3 {
		changes := random(r)
		err := s.Apply(changes)
		if err != nil && !damaged {
			require.ErrorIs(t, err, bolt.ErrBroken)
			break
		}
		require.NoError(t, err)
		model(before, changes)
	}
	if damaged {
		require.Equal(t, before, contents(t, s), "what is written is read")
	} else {
		names, err := s.Buckets()
		for _, name := range names {
			err = errors.Join(err, s.Read(name, func(_, _ []byte) error { return nil }))
		}
		if err != nil {
			require.ErrorIs(t, err, bolt.ErrBroken)
		}
	}
	require.NoError(t, s.Close())

	return damaged
}

// TestDamagedFileNeitherCrashesNorLies: bits that flip, and files that are cut
// off, lead to a new file or to records that differ, which have checksums.
func TestDamagedFileNeitherCrashesNorLies(t *testing.T) {
	file, _ := written(t)
	path := filepath.Join(t.TempDir(), "cache.db")
	r := rand.New(rand.NewPCG(7, 8))
	page, renewed, tries := os.Getpagesize(), 0, 400
	for i := range tries {
		damaged := bytes.Clone(file)
		switch i % 4 {
		case 0: // anywhere
			damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
		case 1: // where the structure is
			damaged[r.IntN(len(damaged)/page)*page+r.IntN(200)] ^= 1 << r.IntN(8)
		case 2:
			damaged = damaged[:r.IntN(len(damaged))]
		case 3: // one page in place of another
			from, to := r.IntN(len(damaged)/page)*page, r.IntN(len(damaged)/page)*page
			copy(damaged[to:to+page], damaged[from:from+page])
		}
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		if requireUsable(t, path) {
			renewed++
		}
	}
	require.Greater(t, renewed, tries/8, "some damage is found by the check")
}

// FuzzDamage: whatever a file says, opening and using it does not crash.
func FuzzDamage(f *testing.F) {
	file, _ := written(f)
	f.Add(uint32(0), []byte{1}, uint32(len(file)))
	f.Add(uint32(os.Getpagesize()*3+8), []byte{1, 0, 200}, uint32(len(file)))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, size uint32) {
		damaged := bytes.Clone(file[:min(int(size), len(file))])
		if int(at) < len(damaged) {
			copy(damaged[at:], patch)
		}
		path := filepath.Join(t.TempDir(), "cache.db")
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		requireUsable(t, path)
	})
}

// TestSecondProcessIsRefusedAtOnce: it neither waits nor takes the other's
// writes for damage.
func TestSecondProcessIsRefusedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	s := open(t, path, bolt.Options{})
	_, err := bolt.Open(path, bolt.Options{OnDamage: func(why error) { require.NoError(t, why) }})
	require.ErrorIs(t, err, persist.ErrLocked)
	var typed *bolt.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, path, typed.Path)
	require.NoError(t, s.Apply([]persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte("v")}}))
	require.NoError(t, s.Close())
	s = open(t, path, bolt.Options{})
	require.Len(t, contents(t, s), 1)
	require.NoError(t, s.Close())
}

// TestFileIsPrivate: records may be secrets.
func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "cache.db")
	for range 2 {
		require.NoError(t, open(t, path, bolt.Options{}).Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, os.Chmod(path, 0o644))
	}
	info, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

// TestFileThatWasNeverWrittenIsNotDamaged: a process may end at any time.
func TestFileThatWasNeverWrittenIsNotDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for range 3 {
		s := open(t, path, bolt.Options{OnDamage: func(why error) { require.NoError(t, why) }})
		require.Empty(t, contents(t, s))
		require.NoError(t, s.Close())
	}
}

// TestUnusablePathIsAnError: nothing hangs, and nothing is replaced.
func TestUnusablePathIsAnError(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{dir, pipe, filepath.Join(file, "below"), "/proc/fleetcache.db", os.DevNull, ""} {
		for _, later := range []bool{false, true} {
			_, err := bolt.Open(path, bolt.Options{Later: later, LockTimeout: time.Hour})
			var typed *bolt.Error
			require.ErrorAs(t, err, &typed, path)
		}
	}
}

// TestFullFileKeepsWhatItHas: a write that does not fit changes nothing.
func TestFullFileKeepsWhatItHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	s := open(t, path, bolt.Options{MaxFileBytes: 1 << 20})
	require.NoError(t, s.Apply([]persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte("v")}}))
	err := s.Apply([]persist.Change{
		{Bucket: "b", Key: []byte("k"), Value: []byte("w")},
		{Bucket: "b", Key: []byte("l"), Value: make([]byte, 2<<20)},
	})
	var typed *bolt.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, map[string]map[string]string{"b": {"k": "v"}}, contents(t, s))
	require.NoError(t, s.Apply([]persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte("x")}}))
	require.NoError(t, s.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(1<<20))
}

// TestFileThatShrinksUnderneathIsAnError: the memory it was mapped to is gone.
func TestFileThatShrinksUnderneathIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	s := open(t, path, bolt.Options{})
	var changes []persist.Change
	for i := range 200 {
		changes = append(changes, persist.Change{
			Bucket: "b",
			Key:    fmt.Append(nil, "key ", i),
			Value:  make([]byte, 4000),
		})
	}
	require.NoError(t, s.Apply(changes))
	require.NoError(t, os.Truncate(path, 4*int64(os.Getpagesize())))
	err := s.Read("b", func(_, value []byte) error {
		_ = bytes.Clone(value)
		return nil
	})
	require.ErrorIs(t, err, bolt.ErrBroken)
	_ = s.Close()
	require.True(t, requireUsable(t, path))
}

// TestReadEndsWithTheErrorOfItsFunction: the store's own errors are typed.
func TestReadEndsWithTheErrorOfItsFunction(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
	require.NoError(t, s.Apply([]persist.Change{
		{Bucket: "b", Key: []byte("k"), Value: []byte("v")},
		{Bucket: "b", Key: []byte("l"), Value: []byte("v")},
	}))
	enough, seen := errors.New("enough"), 0
	require.Equal(t, enough, s.Read("b", func(_, _ []byte) error { seen++; return enough }))
	require.Equal(t, 1, seen)
	require.NoError(t, s.Read("none", func(_, _ []byte) error { return enough }))
	require.NoError(t, s.Apply([]persist.Change{{Bucket: "none"}, {Bucket: "none", Key: []byte("k")}}))
	require.Equal(t, []string{"b"}, slices.Collect(maps.Keys(contents(t, s))))
	require.NoError(t, s.Close())
	_, err := s.Buckets()
	var typed *bolt.Error
	require.ErrorAs(t, err, &typed, "closed")
}
