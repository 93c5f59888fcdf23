// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	elf = "\x7fELF\x02\x01\x01\x00"
	png = "\x89PNG\r\n\x1a\n\x00"
)

var listed = []string{"docs/listed.png", "docs/large.png", "docs/program.png"}

func TestSourcesAndListedImagesPass(t *testing.T) {
	dir, base := newRepository(t)
	commit(t, dir, map[string]string{
		"main.go":         "package main\n",
		"run":             "#!/bin/sh\n",
		"docs/listed.png": png,
		"sized.txt":       strings.Repeat("x", maxSize),
	})

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Empty(t, r.refused)
	require.Equal(t, 5, r.files)
	require.Equal(t, "1 commits checked since "+base[:12], r.history)
}

func TestWhatIsNoSourceIsRefusedInTheTreeAndInItsCommit(t *testing.T) {
	cases := []struct{ path, content, why string }{
		{"program", elf, "a program or object file (ELF)"},
		{"examples/clusterapi/clusterapi", elf + strings.Repeat("\x00", 1<<20), "a program or object file (ELF)"},
		{"mac", "\xcf\xfa\xed\xfe\x0c\x00", "a program or object file (Mach-O)"},
		{"program.exe", "MZ\x90\x00\x03", "a program (PE)"},
		{"lib.a", "!<arch>\nmain.o", "an archive of object files"},
		{"module.wasm", "\x00asm\x01\x00", "a WebAssembly module"},
		{"Main.class", "\xca\xfe\xba\xbe\x00", "a Java class or universal Mach-O program"},
		{"lib.jar", "PK\x03\x04\x14", "a zip or jar archive"},
		{"data.gz", "\x1f\x8b\x08", "a gzip archive"},
		{"heap.prof.raw", "text\x00text", "neither text nor a listed image"},
		{"latin1.txt", "caf\xe9", "neither text nor a listed image"},
		{"long.txt", strings.Repeat("0123456789\n", 300<<10/11), "299 KiB, more than 256 KiB"},
		{"docs/unlisted.png", png, image},
		{"docs/photo.jpg", "\xff\xd8\xff\xe0", image},
		{"docs/large.png", png + strings.Repeat("\x00", maxSize), "256 KiB, more than 256 KiB"},
		{"docs/program.png", elf, "a program or object file (ELF)"},
	}
	dir, base := newRepository(t)
	files := map[string]string{}
	for _, c := range cases {
		files[c.path] = c.content
	}
	head := commit(t, dir, files)

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Len(t, r.refused, 2*len(cases))
	for _, c := range cases {
		require.Contains(t, r.refused, "index: "+c.path+": "+c.why)
		require.Contains(t, r.refused, "commit "+head[:12]+": "+c.path+": "+c.why)
	}
}

// What a later commit removes is still fetched by each clone.
func TestAFileThatWasRemovedAgainIsRefused(t *testing.T) {
	dir, base := newRepository(t)
	added := commit(t, dir, map[string]string{"program": elf})
	git(t, dir, "rm", "--quiet", "program")
	commit(t, dir, nil)

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Equal(t, []string{"commit " + added[:12] + ": program: a program or object file (ELF)"}, r.refused)
}

func TestAFileOfAMergedBranchOrOfTheMergeItselfIsRefused(t *testing.T) {
	dir, base := newRepository(t)
	git(t, dir, "checkout", "--quiet", "-b", "side")
	side := commit(t, dir, map[string]string{"side": elf})
	git(t, dir, "rm", "--quiet", "side")
	commit(t, dir, nil)
	git(t, dir, "checkout", "--quiet", "main")
	commit(t, dir, map[string]string{"other.go": "package other\n"})
	git(t, dir, "merge", "--quiet", "--no-ff", "--no-commit", "side")
	merge := commit(t, dir, map[string]string{"evil": elf})

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Contains(t, r.refused, "commit "+side[:12]+": side: a program or object file (ELF)")
	require.Contains(t, r.refused, "commit "+merge[:12]+": evil: a program or object file (ELF)")
}

// A rename brings no blob, but an image may be listed under one name alone.
func TestAnImageThatMovesAwayFromItsListedNameIsRefused(t *testing.T) {
	dir, base := newRepository(t)
	commit(t, dir, map[string]string{"docs/listed.png": png})
	git(t, dir, "mv", "docs/listed.png", "moved.png")
	commit(t, dir, nil)

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Len(t, r.refused, 2)
}

func TestWhatIsStagedIsRefused(t *testing.T) {
	dir, base := newRepository(t)
	write(t, dir, map[string]string{"program": elf})
	git(t, dir, "add", "--all")

	r, err := check(dir, base, listed)

	require.NoError(t, err)
	require.Equal(t, []string{"index: program: a program or object file (ELF)"}, r.refused)
}

func TestTheHistoryBeforeTheBaseIsExcepted(t *testing.T) {
	dir, _ := newRepository(t)
	commit(t, dir, map[string]string{"program": elf})
	git(t, dir, "rm", "--quiet", "program")
	base := commit(t, dir, nil)
	commit(t, dir, map[string]string{"main.go": "package main\n"})

	r, err := check(dir, base, listed)
	require.NoError(t, err)
	require.Empty(t, r.refused)

	clone := t.TempDir()
	git(t, clone, "clone", "--quiet", "file://"+dir, ".")
	r, err = check(clone, base, listed)
	require.NoError(t, err)
	require.Empty(t, r.refused)
	require.Equal(t, "1 commits checked since "+base[:12], r.history)
}

func TestAHistoryWithoutTheBaseIsCheckedFromItsBeginning(t *testing.T) {
	dir, _ := newRepository(t)
	commit(t, dir, map[string]string{"program": elf})
	git(t, dir, "rm", "--quiet", "program")
	commit(t, dir, nil)

	r, err := check(dir, ground, listed)

	require.NoError(t, err)
	require.Len(t, r.refused, 1)
	require.Equal(t, "3 commits checked of the whole history, which does not contain "+ground[:12], r.history)
}

func TestAShallowCloneSaysThatOnlyItsFilesWereChecked(t *testing.T) {
	dir, base := newRepository(t)
	commit(t, dir, map[string]string{"program": elf})
	clone := t.TempDir()
	git(t, clone, "clone", "--quiet", "--depth", "1", "file://"+dir, ".")

	r, err := check(clone, base, listed)

	require.NoError(t, err)
	require.Equal(t, []string{"index: program: a program or object file (ELF)"}, r.refused)
	require.Equal(t, "the clone is shallow: no commits were checked, only the files", r.history)
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	_, err := check(t.TempDir(), ground, listed)
	require.ErrorContains(t, err, "git ls-files")
}

func newRepository(t *testing.T) (dir, base string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	return dir, commit(t, dir, map[string]string{"README.md": "# A repository\n"})
}

// commit writes files, commits everything, and returns the commit.
func commit(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	write(t, dir, files)
	git(t, dir, "add", "--all")
	git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=change")
	return strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := repository(dir).git(nil, args...)
	require.NoError(t, err)
	return string(out)
}
