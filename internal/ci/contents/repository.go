// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// repository is the directory of a git repository.
type repository string

// file is one version of one file.
type file struct {
	where string // "index", or a commit
	path  string
	blob  string
}

const submodule = "160000" // the mode of an entry that has no blob

// index returns the files that git follows.
func (r repository) index() ([]file, error) {
	out, err := r.git(nil, "ls-files", "-z", "--stage", "--full-name", ":/")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range fields(out) { // mode blob stage TAB path
		about, path, _ := strings.Cut(entry, "\t")
		parts := strings.Fields(about)
		if len(parts) != 3 {
			return nil, fmt.Errorf("git ls-files printed %q", entry)
		}
		if parts[0] != submodule {
			files = append(files, file{where: "index", path: path, blob: parts[1]})
		}
	}
	return files, nil
}

// since returns the files that the commits between base and HEAD add or change,
// and a sentence that says which commits those are. A shallow clone does not
// have them.
func (r repository) since(base string) ([]file, string, error) {
	shallow, err := r.git(nil, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, "", err
	}
	if strings.TrimSpace(string(shallow)) == "true" {
		return nil, "the clone is shallow: no commits were checked, only the files", nil
	}
	commits, of := base+"..HEAD", "since "+base[:12]
	if _, err := r.git(nil, "merge-base", "--is-ancestor", base, "HEAD"); err != nil {
		commits, of = "HEAD", "of the whole history, which does not contain "+base[:12]
	}
	files, n, err := r.changes(commits)
	return files, fmt.Sprintf("%d commits checked %s", n, of), err
}

// changes returns the files that commits add or change, and how many commits
// there are.
func (r repository) changes(commits string) ([]file, int, error) {
	out, err := r.git(nil, "log", "-z", "--format=commit %H", "-m", "--root",
		"--raw", "--no-abbrev", "--no-renames", commits)
	if err != nil {
		return nil, 0, err
	}
	var files []file
	seen := map[string]bool{} // a merge is printed once for each parent
	where := ""
	parts := fields(out)
	for i := 0; i < len(parts); i++ {
		part := strings.TrimLeft(parts[i], "\n")
		if hash, ok := strings.CutPrefix(part, "commit "); ok {
			where = "commit " + hash[:12]
			seen[hash] = true
			continue
		}
		about := strings.Fields(part) // :mode mode blob blob status, then the path
		if len(about) != 5 || i+1 == len(parts) {
			return nil, 0, fmt.Errorf("git log printed %q", part)
		}
		i++
		if about[4] != "D" && about[1] != submodule {
			files = append(files, file{where: where, path: parts[i], blob: about[3]})
		}
	}
	return files, len(seen), nil
}

// verdicts reads each blob once.
func (r repository) verdicts(files []file) (map[string]contents, error) {
	blobs := map[string]contents{}
	var ask strings.Builder
	for _, f := range files {
		if _, ok := blobs[f.blob]; !ok {
			blobs[f.blob] = contents{}
			ask.WriteString(f.blob + "\n")
		}
	}
	out, err := r.git(strings.NewReader(ask.String()), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(bytes.NewReader(out))
	for range blobs {
		var blob, kind string
		var size int
		if _, err := fmt.Fscanf(in, "%s %s %d\n", &blob, &kind, &size); err != nil {
			return nil, fmt.Errorf("git cat-file: %w", err)
		}
		data := make([]byte, size+1) // with a newline
		if _, err := io.ReadFull(in, data); err != nil {
			return nil, fmt.Errorf("git cat-file: %w", err)
		}
		blobs[blob] = look(data[:size])
	}
	return blobs, nil
}

func (r repository) git(stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = string(r)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(failed.Stderr))
	}
	return out, err
}

// fields splits what git printed with -z.
func fields(out []byte) []string {
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}
