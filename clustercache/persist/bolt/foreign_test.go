// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
)

const secret = "c2VjcmV0LXRva2Vu"

// foreign writes files that are not ours, by what they are.
var foreign = map[string]func(t *testing.T, path string){
	"kubeconfig": func(t *testing.T, path string) {
		t.Helper()
		text := "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {token: " + secret + "}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	},
	"a short text": func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	},
	"zeros": func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, make([]byte, 40<<10), 0o640))
	},
	"another program's database": func(t *testing.T, path string) {
		t.Helper()
		other(t, path, &bbolt.Options{}, func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(secret))
			return errors.Join(err, b.Put([]byte("k"), bytes.Repeat([]byte(secret), 3000)))
		})
	},
	"another program's database with our options and names": func(t *testing.T, path string) {
		t.Helper()
		other(t, path, &bbolt.Options{NoFreelistSync: true}, func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("headers"))
			return errors.Join(err, b.SetSequence(7), b.Put([]byte("k"), []byte("v")))
		})
	},
	"another program's empty database": func(t *testing.T, path string) {
		t.Helper()
		other(t, path, &bbolt.Options{}, nil)
	},
	"another program's damaged database": func(t *testing.T, path string) {
		t.Helper()
		other(t, path, &bbolt.Options{}, func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("b"))
			return err
		})
		require.NoError(t, os.Truncate(path, int64(os.Getpagesize())+100))
	},
	"an archive with a file of ours":        archive(512),
	"an archive with more before it":        archive(1 << 10),
	"an archive with half a page before it": archive(os.Getpagesize() / 2),
}

// archive writes a file that has one of ours in it.
func archive(at int) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		t.Helper()
		file, _ := written(t)
		require.NoError(t, os.WriteFile(path, append(make([]byte, at), file...), 0o600))
	}
}

// other makes a file as another program does, and changes it.
func other(t *testing.T, path string, o *bbolt.Options, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o644, o)
	require.NoError(t, err)
	if change != nil {
		require.NoError(t, db.Update(change))
	}
	require.NoError(t, db.Close())
}

// tree returns what is below a directory: modes, times and contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		says := fmt.Sprint(info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			says += string(content)
		}
		out[strings.TrimPrefix(path, dir)] = says
		return nil
	}))
	return out
}

// TestHazardForeignFileIsNeverChanged: neither its content nor its mode, also
// behind a link and after many attempts. The error names the path and what was
// found, and nothing of the content.
func TestHazardForeignFileIsNeverChanged(t *testing.T) {
	for name, write := range foreign {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, linked), func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "file")
				write(t, path)
				if linked {
					require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
					path = filepath.Join(dir, "link")
				}
				before := tree(t, dir)
				for _, o := range []bolt.Options{{}, {Later: true}} {
					o.OnDamage = func(why error) { require.NoError(t, why) }
					_, err := bolt.Open(path, o)
					var typed *bolt.Error
					require.ErrorAs(t, err, &typed)
					require.ErrorIs(t, err, bolt.ErrForeign)
					require.Equal(t, path, typed.Path)
					require.Equal(t, "open", typed.Op)
					database := strings.HasPrefix(name, "another program")
					require.Equal(t, database, strings.Contains(err.Error(), "database without"))
					require.NotContains(t, err.Error(), secret)
				}
				require.Equal(t, before, tree(t, dir))
			})
		}
	}
}

// TestHazardForeignFileInUseIsNeverChanged: its own program has it open, and
// still can write.
func TestHazardForeignFileInUseIsNeverChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	_, err = bolt.Open(path, bolt.Options{})
	require.ErrorIs(t, err, persist.ErrLocked)
	s := open(t, path, bolt.Options{Later: true})
	put := []persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte("v")}}
	require.ErrorIs(t, s.Apply(put), persist.ErrLocked)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, db.Close())
	before := tree(t, filepath.Dir(path))
	require.ErrorIs(t, s.Apply(put), bolt.ErrForeign)
	require.NoError(t, s.Close())
	require.Equal(t, before, tree(t, filepath.Dir(path)))
}

// TestMarkerOutlastsWrites of bbolt, which does not know of it.
func TestMarkerOutlastsWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for i := range 20 {
		s := open(t, path, bolt.Options{OnDamage: func(why error) { require.NoError(t, why) }})
		for j := range 3 {
			require.NoError(t, s.Apply([]persist.Change{
				{Bucket: fmt.Sprint(i % 3), Key: fmt.Append(nil, j), Value: make([]byte, 10_000)},
				{Bucket: fmt.Sprint((i + 1) % 3)},
			}))
		}
		require.NoError(t, s.Close())
	}
	other(t, path, nil, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("1")) })
	_, err := bolt.Open(path, bolt.Options{})
	require.NotErrorIs(t, err, bolt.ErrForeign)
}

// TestDamagedFileIsSetAside, whatever is damaged, and with all of its bytes.
func TestDamagedFileIsSetAside(t *testing.T) {
	file, _ := written(t)
	page := os.Getpagesize()
	damages := map[string][]byte{}
	for at := page; at < 20*page; at += page {
		damages[fmt.Sprint("cut off at page ", at/page)] = file[:at]
		damages[fmt.Sprint("cut off within page ", at/page)] = file[:at+100]
	}
	for at := 0; at < 20*page; at += page {
		zeroed := bytes.Clone(file)
		clear(zeroed[at : at+page])
		damages[fmt.Sprint("zeroed page ", at/page)] = zeroed
	}
	for at := range headerAndMeta {
		flipped := bytes.Clone(file)
		flipped[at] ^= 1 << (at % 8)
		flipped[page+at] ^= 1 << (at % 7)
		damages[fmt.Sprint("flipped bits of byte ", at)] = flipped
	}
	aside := 0
	for name, content := range damages {
		path := filepath.Join(t.TempDir(), "cache.db")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		var why *bolt.DamageError
		s, err := bolt.Open(path, bolt.Options{OnDamage: func(err error) { require.ErrorAs(t, err, &why) }})
		if errors.Is(err, bolt.ErrForeign) { // both markers are damaged
			require.Contains(t, name, "flipped")
			left, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, left)
			continue
		}
		require.NoError(t, err, name)
		if why != nil {
			aside++
			require.Equal(t, path, why.Path)
			require.Equal(t, path+".damaged", why.Aside)
			left, err := os.ReadFile(why.Aside)
			require.NoError(t, err)
			require.Equal(t, content, left, name)
			require.Empty(t, contents(t, s))
		}
		require.NoError(t, s.Apply([]persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte("v")}}))
		require.NoError(t, s.Close())
	}
	require.Greater(t, aside, 60)
}

// headerAndMeta is how many bytes of a meta page are in use.
const headerAndMeta = 80

// TestFewDamagedFilesAreKept: the oldest of ours is replaced, and no other.
func TestFewDamagedFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	require.NoError(t, os.WriteFile(path+".damaged.1", []byte("notes"), 0o600))
	file, _ := written(t)
	half := func(n int) []byte { return file[:len(file)/2+n] }
	for i := range 5 {
		require.NoError(t, os.WriteFile(path, half(i), 0o600))
		damaged := false
		s := open(t, path, bolt.Options{OnDamage: func(error) { damaged = true }})
		require.True(t, damaged)
		require.NoError(t, s.Close())
	}
	names := slices.Sorted(maps.Keys(tree(t, dir)))
	require.Equal(t, []string{"/cache.db", "/cache.db.damaged", "/cache.db.damaged.1", "/cache.db.damaged.2"}, names)
	for name, want := range map[string][]byte{
		".damaged":   half(4),
		".damaged.1": []byte("notes"),
		".damaged.2": half(3),
	} {
		got, err := os.ReadFile(path + name)
		require.NoError(t, err)
		require.Len(t, got, len(want), name)
	}
}

// TestDamagedFileThatCannotBeSetAsideIsLeft: all names are taken.
func TestDamagedFileThatCannotBeSetAsideIsLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	for _, name := range []string{".damaged", ".damaged.1", ".damaged.2"} {
		require.NoError(t, os.WriteFile(path+name, []byte("notes"), 0o600))
	}
	file, _ := written(t)
	require.NoError(t, os.WriteFile(path, file[:len(file)/2], 0o600))
	before := tree(t, dir)
	_, err := bolt.Open(path, bolt.Options{OnDamage: func(why error) { require.NoError(t, why) }})
	require.ErrorContains(t, err, "cannot be set aside")
	require.Equal(t, before, tree(t, dir))
}

// TestOneOfManyOpenersSetsTheFileAside: the others never take the damaged file
// for the one in use, nor the new one for damaged.
func TestOneOfManyOpenersSetsTheFileAside(t *testing.T) {
	file, _ := written(t)
	for range 40 {
		path := filepath.Join(t.TempDir(), "cache.db")
		require.NoError(t, os.WriteFile(path, file[:len(file)/2], 0o600))
		var opening sync.WaitGroup
		var damages atomic.Int64
		opened := make(chan *bolt.Store, 8)
		for range cap(opened) {
			opening.Go(func() {
				s, err := bolt.Open(path, bolt.Options{OnDamage: func(error) { damages.Add(1) }})
				if err == nil {
					opened <- s
				} else {
					assert.ErrorIs(t, err, persist.ErrLocked)
				}
			})
		}
		opening.Wait()
		require.LessOrEqual(t, len(opened), 1)
		require.Equal(t, int64(1), damages.Load())
		if len(opened) == 1 {
			require.NoError(t, (<-opened).Close())
		}
		names := slices.Sorted(maps.Keys(tree(t, filepath.Dir(path))))
		require.Equal(t, []string{"/cache.db", "/cache.db.damaged"}, names)
	}
}

// TestLinkStaysALink when the file that it leads to is set aside.
func TestLinkStaysALink(t *testing.T) {
	dir, volume := t.TempDir(), t.TempDir()
	link, path := filepath.Join(dir, "cache.db"), filepath.Join(volume, "file.db")
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, open(t, link, bolt.Options{}).Close())
	require.NoError(t, os.Truncate(path, int64(os.Getpagesize())))
	var why *bolt.DamageError
	s := open(t, link, bolt.Options{OnDamage: func(err error) { require.ErrorAs(t, err, &why) }})
	require.NoError(t, s.Close())
	require.Equal(t, path+".damaged", why.Aside)
	require.Equal(t, []string{"/cache.db"}, slices.Collect(maps.Keys(tree(t, dir))))
	require.Equal(t, []string{"/file.db", "/file.db.damaged"}, slices.Sorted(maps.Keys(tree(t, volume))))
}
